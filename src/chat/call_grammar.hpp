/* Makes llama.cpp's grammars of replies say what its parsers take and what was asked for: they are text, and are
 * changed as text. Pure functions; any thread. */
#ifndef CHAT_CALL_GRAMMAR_HPP
#define CHAT_CALL_GRAMMAR_HPP

#include "chat/template.hpp"

#include <string>

namespace chat
{

/* Makes a required call the first thing that the model writes, but for its reasoning. Throws refusal where the template
 * has no form of calls. */
void require_call(common_chat_params &params);

/* Some of llama.cpp's parsers do without the end of the reasoning, and take what the grammar lets follow for more of
 * it. A grammar that holds from the beginning wants the end. */
void close_reasoning(common_chat_params &params);

/* llama.cpp does not always end a reply after the one call that is allowed. */
void limit_to_one_call(std::string &grammar);

/* Where nothing but the end of a call closes its arguments, llama.cpp's parser wants it right behind them, and its
 * grammar allows white space. */
void close_calls_tightly(const chat_template &template_, std::string &grammar);

/* A grammar of what either of two grammars matches. */
std::string either_grammar(const std::string &first, const std::string &second);

} // namespace chat

#endif
