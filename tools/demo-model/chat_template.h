/* The chat template of the model, as its GGUF file has it: ChatML, with tools in the format of Qwen2.5 and Hermes.
 * corpus/conversation.c writes the same text, and test_corpus.c compares the two. */
#ifndef DEMO_CHAT_TEMPLATE_H
#define DEMO_CHAT_TEMPLATE_H

extern const char chat_template[];

#endif
