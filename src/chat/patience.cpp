/* Questions in a compiled template: see patience.hpp. */
#include "chat/patience.hpp"

#include "chat/errors.hpp"

namespace chat
{

thread_local const chat_stop *patience::current;

/* Prints nothing. */
struct question : jinja::statement {
    std::string type() const override { return "Question"; }

    jinja::value execute_impl(jinja::context &) const override
    {
        const chat_stop *stop = patience::current;
        if (stop != nullptr && stop->gives_up(stop->ud)) throw given_up{};
        return jinja::mk_val<jinja::value_undefined>();
    }
};

static void begin_with_question(jinja::statements &body)
{
    auto asks = std::make_unique<question>();
    asks->pos = 0;
    body.insert(body.begin(), std::move(asks));
}

void insert_questions(jinja::statements &statements)
{
    for (auto &one : statements) {
        if (auto *loop = dynamic_cast<jinja::for_statement *>(one.get())) {
            insert_questions(loop->body);
            insert_questions(loop->default_block);
            begin_with_question(loop->body);
        } else if (auto *macro = dynamic_cast<jinja::macro_statement *>(one.get())) {
            insert_questions(macro->body);
            begin_with_question(macro->body);
        } else if (auto *choice = dynamic_cast<jinja::if_statement *>(one.get())) {
            insert_questions(choice->body);
            insert_questions(choice->alternate);
        } else if (auto *block = dynamic_cast<jinja::set_statement *>(one.get())) {
            insert_questions(block->body);
        } else if (auto *filtered = dynamic_cast<jinja::filter_statement *>(one.get())) {
            insert_questions(filtered->body);
        } else if (auto *call = dynamic_cast<jinja::call_statement *>(one.get())) {
            insert_questions(call->body);
        }
    }
}

} // namespace chat
