/* The steps from a JSON schema to one that llama.cpp converts: counting what it costs (schema_cost.cpp), walking and
 * merging (schema_walk.cpp), lowering (schema_lower.cpp). Pure functions but for the budget; any thread. */
#ifndef CHAT_SCHEMA_PARTS_HPP
#define CHAT_SCHEMA_PARTS_HPP

#include "chat/pattern.hpp"
#include "json.h"

#include <cstddef>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace chat
{

/* ---- The cost of a schema's grammar, counted before it is spent ----
 * Some of llama.cpp's steps take the square, the cube or any power of the schema's size. A search for strings follows
 * references as often as it meets them. A rule has the names of all that it is in, and a pattern copies all rules
 * before it. Here steps are counted by going through a schema as its conversion will; rewriting it beforehand
 * (schema_lower.cpp) counts its own. All of them have a price in nanoseconds, as measured, and share one budget, so
 * that what is too much does not depend on its kind, nor on the machine. A budget belongs to one preparation. */

/* More than the budget has. */
struct schema_too_large {
    std::string reason =
        "is where the schema becomes too large, with its references, alternatives, names and patterns: "
        "split it, require properties, or leave constraints out";
    std::string pointer = ""; /* of the part at which it ran out */
};

class schema_budget
{
  public:
    struct amounts {
        size_t nanoseconds, bytes; /* left of time and memory */
        size_t text, items;        /* left of what a grammar may have */
        size_t rules;              /* of the grammar so far */
    };

    /* For so many schemas of the largest cost that is taken. */
    explicit schema_budget(size_t schemas = 1);

    /* Each throws schema_too_large, and then nothing is left. */
    void values(size_t n) { spend(n, 250); }           /* values of JSON that are copied or compared */
    void parts(size_t n);                              /* schemas that are rewritten */
    void search(size_t members) { spend(members, 6); } /* of an object, for one of them */
    void text(size_t bytes) { spend(bytes, 4); }       /* that is written or compared */
    void names(size_t bytes) { spend(bytes, 60); }     /* text that is searched with a regular expression */
    /* Of the grammar, with so much text; `times`: it is added so often, and is the same each time. */
    void rule(const std::string &name, size_t bytes, size_t times = 1);
    void pattern(size_t bytes);               /* of the grammar */
    void items(size_t n);                     /* of the grammar, once it is read */
    void spend(size_t n, size_t nanoseconds); /* n times */
    void hold(size_t bytes);                  /* of memory, until all is prepared */

    /* To spend no more than one schema's, or one `nth` of its time, and then to have back what was left beside that. */
    amounts lend(size_t nth);
    void give_back(const amounts &before);

    amounts left() const { return now; }
    void set_left(const amounts &before) { now = before; }

  private:
    amounts now;
    amounts lent = {};                       /* by lend() */
    std::unordered_map<size_t, size_t> same; /* how many rules have a name, by its hash */
};

/* How many values there are in one. */
size_t values_in(const common_json &value);

/* Spends what converting a schema costs that lower_schema() made, for a reply ("") or for a tool of that name. Throws
 * schema_too_large. */
void spend_conversion(const common_json &schema, const std::string &tool, schema_budget &budget);

/* ---- Walking ----
 * Goes through JSON schemas by the places of their keywords, and finds what references mean: a property's name or a
 * literal value is never taken for a keyword. */

/* A schema that demands a type alone. */
common_json of_type(const char *type);

/* The names that a schema requires. */
std::set<std::string> required_of(const common_json &schema);

/* A key as a step of a JSON pointer. */
std::string pointer_step(const std::string &key);

/* The value at a JSON pointer ("", "/$defs/a"); NULL: there is none. Spends what the search costs. */
const common_json *value_at(const common_json &root, const std::string &pointer, schema_budget &budget);

/* The schema with each reference that leads to a part of it as "#" and that part's JSON pointer, whatever it was: with
 * an anchor, percent-encoded, relative to an $id. Others stay as they are. Throws schema_too_large. */
common_json with_plain_references(const common_json &schema, schema_budget &budget);

/* ---- What several schemas demand together, as one ---- */

/* A schema that cannot be converted, and why. */
struct schema_fault : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/* The enforced keywords of a schema, each in one form: "type" a list, "const" an "enum", a list of "items"
 * "prefixItems". Throws schema_fault where one is malformed. */
common_json enforced_part(const common_json &schema);

/* Adds what another schema demands, both as enforced_part() has them. False: no value satisfies both. */
bool merge_schema(common_json &into, common_json more);

/* A schema that demands both. */
common_json both(const common_json &a, const common_json &b);

/* The value of a keyword that counts, `none` where it is absent; and the lengths of a string. */
uint32_t count_of(const common_json &schema, const char *key, uint32_t none);
lengths lengths_in(const common_json &schema);

/* Whether bounds and types allow a literal value; other keywords beside literals are not looked at. */
bool allows_literal(const common_json &schema, const common_json &value);

/* ---- Lowering: rewriting into the part of JSON schemas that llama.cpp converts faithfully ----
 * llama.cpp reads some keywords in its own way, and some wrong. Among them are `allOf`, references with something
 * beside them, `anyOf` beside properties, bounds and patterns.
 *
 * A lowered schema has objects, arrays, strings, integers and literals, alternatives of them and plain references. It
 * allows no text that the given schema does not, but for the keywords that are named as not enforced. */

struct lowered_schema {
    struct fault {
        std::string pointer; /* of the sub-schema that takes any value now: "/properties/a" */
        std::string reason;
    };

    common_json schema;
    std::vector<fault> faults;        /* what could not be kept, each once; not all of very many */
    std::set<std::string> unenforced; /* keywords in it that nothing enforces, as docs/schemas.md names them */
};

/* `prefix`: of the names of definitions, which are unique in a grammar. `of_tool`: of a tool's arguments, whose
 * outermost part stays an object with properties: alternatives beside them are not enforced. Throws schema_too_large.
 */
lowered_schema lower_schema(const common_json &schema, const std::string &prefix, bool of_tool, schema_budget &budget);

} // namespace chat

#endif
