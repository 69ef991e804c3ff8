/* What it costs to make a grammar of a schema, counted before it is spent.
 *
 * Some of what llama.cpp does with a schema takes the square, the cube or any power of what the schema holds: a
 * reference is followed as often as it is met, a rule has the names of all that it is in, a pattern copies all rules
 * before it. Here steps are counted by going through a schema as its conversion will; rewriting it beforehand
 * (schema_lower.hpp) counts its own. All of them have a price in nanoseconds, as measured, and share one budget, so
 * that what is too much does not depend on its kind, nor on the machine. A budget belongs to one preparation; any
 * thread. */
#ifndef CHAT_SCHEMA_COST_HPP
#define CHAT_SCHEMA_COST_HPP

#include "json.h"

#include <cstddef>
#include <string>
#include <unordered_map>

namespace chat
{

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
        size_t nanoseconds, bytes; /* of time and memory: what is left */
        size_t text, items;        /* of what a grammar may have: what is left */
        size_t rules;              /* of the grammar so far */
    };

    /* For so many schemas of the largest cost that is taken. */
    explicit schema_budget(size_t schemas = 1);

    /* Each throws schema_too_large, and then nothing is left. */
    void values(size_t n);       /* values of JSON that are copied or compared */
    void parts(size_t n);        /* schemas that are rewritten */
    void search(size_t members); /* of an object, for one of them */
    void text(size_t bytes);     /* that is written or compared */
    void names(size_t bytes);    /* text that is searched with a regular expression */
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

} // namespace chat

#endif
