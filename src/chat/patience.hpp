/* When a rendering is given up. A template is a program, and a client chooses how long its loops are: each pass of a
 * loop and each call of a macro asks whether the request is still wanted, and has not taken too long. */
#ifndef CHAT_PATIENCE_HPP
#define CHAT_PATIENCE_HPP

#include "chat/chat.h"

#include "jinja/runtime.h"

namespace chat
{

/* Whom to ask, on this thread, for as long as the object lives; NULL: nobody. */
class patience
{
  public:
    explicit patience(const chat_stop *stop) : before(current) { current = stop; }
    ~patience() { current = before; }
    patience(const patience &) = delete;
    patience &operator=(const patience &) = delete;

    static thread_local const chat_stop *current;

  private:
    const chat_stop *before;
};

/* Makes the statements ask, in all their loops and macros. */
void insert_questions(jinja::statements &statements);

} // namespace chat

#endif
