/* Patterns of formats: see formats.hpp. */
#include "chat/formats.hpp"

namespace chat
{

#define YEAR  "[0-9]{4}"
#define MONTH "(0[1-9]|1[0-2])"
#define DATE                                                                                                           \
    "(" YEAR "-(" MONTH "-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"                        \
    "|([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)"
#define TIME "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{3})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"

/* ISO 8601's, as of RFC 3339: a smaller unit only behind the next larger one. */
#define N        "[0-9]{1,9}"
#define DUR_DATE "(" N "D|" N "M(" N "D)?|" N "Y(" N "M(" N "D)?)?)"
#define DUR_TIME "T(" N "S|" N "M(" N "S)?|" N "H(" N "M(" N "S)?)?)"
#define DURATION "P(" DUR_DATE "(" DUR_TIME ")?|" DUR_TIME "|" N "W)"

#define OCTET    "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4     "(" OCTET "\\.){3}" OCTET
#define H        "[0-9a-fA-F]{1,4}"
#define IPV6                                                                                                           \
    "((" H ":){7}" H "|(" H ":){1,7}:|(" H ":){1,6}:" H "|(" H ":){1,5}(:" H "){1,2}|(" H ":){1,4}(:" H "){1,3}|(" H   \
    ":){1,3}(:" H "){1,4}|(" H ":){1,2}(:" H "){1,5}|" H ":(:" H "){1,6}|:((:" H "){1,7}|:))"

#define LABEL "[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
#define ATOM  "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]{1,64}"
#define EMAIL ATOM "(\\." ATOM ")*@(" LABEL "\\.)+" LABEL

/* RFC 3986, with a scheme. */
#define HEX2  "%[0-9a-fA-F]{2}"
#define NAME  "([a-zA-Z0-9._~!$&'()*+,;=-]|" HEX2 ")"
#define PCHAR "([a-zA-Z0-9._~!$&'()*+,;=:@-]|" HEX2 ")"
#define TAIL  "([a-zA-Z0-9._~!$&'()*+,;=:@/?-]|" HEX2 ")*"
#define URI                                                                                                            \
    "[a-zA-Z][a-zA-Z0-9+.-]*:(//((" NAME "|:)*@)?(" NAME "*|\\[" IPV6 "\\])(:[0-9]{0,5})?(/" PCHAR "*)*|/(" PCHAR      \
    "+(/" PCHAR "*)*)?|" PCHAR "+(/" PCHAR "*)*)(\\?" TAIL ")?(#" TAIL ")?"

/* No address of IPv6 ends in one of IPv4. */
static const struct {
    const char *name, *pattern;
} formats[] = {{"date", "^" DATE "$"},         {"time", "^" TIME "$"},   {"date-time", "^" DATE "T" TIME "$"},
               {"duration", "^" DURATION "$"}, {"email", "^" EMAIL "$"}, {"ipv4", "^" IPV4 "$"},
               {"ipv6", "^" IPV6 "$"},         {"uri", "^" URI "$"},     {"json-pointer", "^(/([^/~]|~[01])*)*$"}};

const char *pattern_of_format(const std::string &format)
{
    for (const auto &known : formats)
        if (format == known.name) return known.pattern;
    return nullptr;
}

} // namespace chat
