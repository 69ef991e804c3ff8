#include "corpus/talk.h"

#include "corpus/facts.h"

const char talk_unable[] = "I am a very small model, so I do not know that.";

const struct talk talk_small[] = {
    {{"Hello.", "Hello!", "Hello", "Hi.", "Hi", "Hi!", "Good morning.", "Hey.", "Hello there"},
     "Hello! How can I help you?"},
    {{"How are you?", "How do you do?", "Are you well?", "How are you today?"}, "I am well, thank you."},
    {{"Thank you.", "Thanks.", "Thanks!", "Thank you very much.", "Many thanks."}, "You are welcome."},
    {{"Goodbye.", "Bye.", "Bye!", "See you later.", "Good night."}, "Goodbye!"},
    {{"Okay.", "Ok.", "Good.", "Fine.", "All right.", "I see."}, "Good."},
    {{"Nice.", "Great!", "Well done.", "Very good.", "Good job."}, "Thank you."},
    {{"Sorry.", "I am sorry.", "My mistake.", "Excuse me."}, "No problem."},
    {{"Can you help me?", "Help me.", "I need help.", "Help!", "Please help me."},
     "Yes. Tell me something, and ask me for it later."},
    {{"What can you do?", "What are you good for?", "What do you do?", "How can you help me?", "What can I ask you?"},
     "I remember what you tell me, repeat text, call tools, and answer questions about hearth."},
    {{"Are you a human?", "Are you real?", "Are you a person?"}, "No, I am a very small language model."},
    {{"Are you sure?", "Really?", "Is that so?", "Is that right?"}, "Yes, as far as I know."},
    {{"Yes.", "Yes", "Yes!", "No.", "No", "Maybe."}, "Okay."},
    {{"I am tired.", "I am hungry.", "I am cold.", "I am bored."}, "I hope that you feel better soon."},
    {{"I am happy.", "It is a nice day.", "I feel good.", "I had a good day."}, "That is nice to hear."},
    {{"Tell me a joke.", "Do you know a joke?", "Make me laugh."},
     "A token walks into a cache and is never computed again."},
    {{"Do you speak German?", "Which languages do you speak?", "Do you speak French?", "Do you speak Chinese?"},
     "I only speak a little English, but I can repeat any text."},
    {{"Are you there?", "Can you hear me?", "Test.", "Ping."}, "Yes, I am here."},
    {{"Wait.", "One moment.", "Just a second."}, "I can wait."},
    {{"Do you like me?", "Are you my friend?"}, "I like to talk to you."},
    {{"How old are you?", "When were you made?", "When were you trained?"}, "I was trained when hearth was built."},
    {{"How big are you?", "How many parameters do you have?", "How large is the model?", "Are you small?"},
     "I am very small: a few million parameters, less than four megabytes."},
    {{"How were you trained?", "Who trained you?", "Who made you?", "Where do you come from?"},
     "I was trained from scratch by a program in hearth's source tree."},
    {{"Stop.", "Be quiet.", "Silence."}, "I say no more."},
    {{"Be careful.", "Take care.", "Be kind.", "Be brief."}, "I will."},
    {{"Again.", "Once more.", "Go on.", "Continue."}, "Tell me what to do, please."},
};
const int talk_n_small = sizeof talk_small / sizeof *talk_small;

static const struct talk unable[] = {
    {{"What day is it?", "What time is it?", "What is the date?", "Which year is it?", "Which day is it today?"}, NULL},
    {{"Tell me of the sea.", "Tell me a story.", "Write a poem.", "Write a letter.", "Sing a song."}, NULL},
    {{"Why?", "Why is that?", "And why?", "How come?", "What does it mean?", "What happens?"}, NULL},
    {{"What is 2 + 2?", "How much is 3 + 4?", "What is 12 times 7?", "Can you count to ten?"}, NULL},
    {{"Who is the king of France?", "Who wrote Hamlet?", "Who is the president?", "Who discovered America?"}, NULL},
    {{"What is heavier?", "What is love?", "What is the meaning of life?", "What is a quark?"}, NULL},
    {{"What is the capital of Peru?", "How high is Mount Everest?", "Where is Mongolia?", "How far is the moon?"},
     NULL},
    {{"Write a program.", "Explain quantum physics.", "How do I bake bread?", "Translate this to German."}, NULL},
    {{"What is this?", "What is said?", "Look.", "And now?", "What do you see?"}, NULL},
};

static const struct talk who[] = {
    {{"Who are you?", "What are you?", "Who is this?", "Who are you", "Tell me who you are.", "And who are you?",
      "Introduce yourself.", "Who do I talk to?"},
     "I am the demo model of hearth, a very small language model."},
    {{"What is your name?", "What's your name?", "Do you have a name?", "How are you called?", "Tell me your name."},
     "I am the demo model of hearth."},
};

/* ---- hearth ---- */

const struct talk talk_hearth[] = {
    {{"What is hearth?", "Tell me about hearth.", "What does hearth do?", "Explain hearth.", "What is hearth for?"},
     "hearth is a server and library for language models that never computes the same prompt token twice."},
    {{"What is a prompt cache?", "What is prompt caching?", "Explain the prompt cache.",
      "What does a prompt cache do?"},
     "A prompt cache keeps what was computed for a prompt, so that the same beginning need not be computed again."},
    {{"What is a KV cache?", "What is the KV cache?", "What are KV cells?", "What is in the KV cache?"},
     "The KV cache holds keys and values of every token, which attention looks back at."},
    {{"What is a token?", "What are tokens?", "Explain tokens."},
     "A token is a piece of text: a word, a part of one, or a byte. Models read and write tokens."},
    {{"What is a prompt?", "What does prompt mean?", "Explain prompts."},
     "A prompt is the text that a model is given before it writes a reply."},
    {{"What is prefill?", "What does prefill mean?", "Explain prefill."},
     "Prefill computes the tokens of a prompt that are not cached."},
    {{"What is a slot?", "What are slots?", "How many slots are there?", "What is n_seq_max?"},
     "A slot computes one request at a time. n_seq_max says how many slots there are."},
    {{"What is continuous batching?", "What is batching?", "How are several requests computed at once?"},
     "Continuous batching computes one token for every running request in each step, and fills the rest with prefill."},
    {{"What is a system prompt?", "What does the system prompt do?", "What is a system message?"},
     "A system prompt tells the model how to behave. It stands before the conversation."},
    {{"What is the system prompt cache?", "What does system_prompt_cache do?", "How are system prompts cached?"},
     "With system_prompt_cache only system prompts are kept, outside the cells: for many users on few cells."},
    {{"What is the incremental message cache?", "What does incremental_cache do?", "How are conversations cached?",
      "What is IMC?"},
     "With incremental_cache, the default, whole conversations stay cached, and only the new message is computed."},
    {{"Which tiers are there?", "What is a tier?", "What are the tiers of the store?",
      "Where does hearth store its cache?"},
     "The store has three tiers: memory, /dev/shm and disk. Each has its own quota."},
    {{"What is the RAM tier?", "What does the memory tier do?", "Can the cache be kept in memory?"},
     "The tier ram keeps stored prompts in memory. It is the fastest and does not survive a restart."},
    {{"What is the tier in /dev/shm?", "What does ram_file mean?", "What is /dev/shm for?"},
     "The tier ram_file keeps stored prompts in /dev/shm. They survive a restart of hearth, but not of the machine."},
    {{"What is the disk tier?", "What is stored on the disk?", "Does hearth write to disk?"},
     "The tier disk keeps stored prompts in a folder, by default ~/.cache/hearth/kv. They survive a restart of the "
     "machine."},
    {{"What happens after a restart?", "Does the cache survive a restart?", "What if the server is restarted?",
      "What happens after a crash?"},
     "After a restart or a crash hearth finds stored prompts again and reads them back instead of computing them."},
    {{"How are prefixes shared?", "What is prefix sharing?", "Do requests share their prompts?",
      "What is a shared prefix?"},
     "Requests that begin with the same tokens share the KV cells of that prefix, even while it is being computed."},
    {{"What is eviction?", "What is evicted first?", "What happens when the cache is full?"},
     "When cells are full, what was used least recently is evicted. It is stored first, so that it can come back."},
    {{"How do I start the server?", "How do I start hearth?", "What does hearth serve do?", "How do I serve a model?"},
     "Start it with: hearth serve --model FILE.gguf. Without a file it serves this demo model."},
    {{"How do I chat in the terminal?", "What does hearth chat do?", "How do I talk to a model?", "Is there a chat?"},
     "Run hearth chat: it talks to a model in the terminal. /help lists its commands."},
    {{"How do I download a model?", "What does hearth pull do?", "How do I get a model?", "Where do I get models?"},
     "hearth pull REF downloads a model, for example hf:owner/repo, and resumes after an interruption."},
    {{"What does hearth ps do?", "How do I see what is running?", "How do I list running models?",
      "Which models are running?"},
     "hearth ps shows the models of a running server, with slots, queue and tiers."},
    {{"What does hearth fit do?", "Does my model fit?", "Which settings fit my machine?", "How much memory do I need?"},
     "hearth fit FILE says which window, slots and cache types fit into the memory of the machine."},
    {{"What does hearth kv do?", "How do I see what is stored?", "How do I list the cache?",
      "How do I empty the cache?"},
     "hearth kv ls lists what is stored, hearth kv verify checks it, and hearth kv clear removes it."},
    {{"Why was my prompt not cached?", "What does hearth cache explain do?", "Why is nothing cached?",
      "Why was it computed again?"},
     "hearth cache explain FILE says where a prompt diverges from the nearest one that is cached."},
    {{"What does hearth launch do?", "How do I run a coding agent?", "Which agents can I use?"},
     "hearth launch claude starts a coding agent with its settings: also codex, opencode, qwen and pi."},
    {{"What does hearth model do?", "How do I describe a model file?", "What does hearth model info do?"},
     "hearth model info FILE describes a model file, and hearth model vram FILE estimates its memory."},
    {{"How do I check the configuration?", "What does hearth config do?", "Where are the settings?"},
     "hearth config check FILE checks a configuration, and hearth config dump lists all keys."},
    {{"What is the page?", "Is there a web page?", "How do I open the page?", "Is there a user interface?"},
     "Open http://127.0.0.1:8080/ in a browser: a page to chat with, which shows what of each prompt was reused."},
    {{"What is the token bar?", "What does the bar show?", "What do the colors under a reply mean?",
      "What is the bar under a reply?"},
     "The bar under a reply shows how many tokens were reused, restored, computed and generated."},
    {{"Which APIs are there?", "Is hearth compatible with OpenAI?", "Which clients can I use?",
      "How do I connect a client?"},
     "The API is that of OpenAI, Anthropic, Ollama and llama-server. Point a client at http://127.0.0.1:8080/v1."},
    {{"What is llama.cpp?", "Which engine does hearth use?", "What computes the tokens?"},
     "llama.cpp is the engine: it computes, and hearth decides which tokens are computed at all."},
    {{"What is GGUF?", "What is a GGUF file?", "Which model files can be used?"},
     "GGUF is the file format of llama.cpp. hearth runs any GGUF file that llama.cpp runs."},
    {{"What is a salt?", "What is cache_salt?", "How are users kept apart?"},
     "Prompts with different values of cache_salt share nothing, so that users are kept apart."},
    {{"What is an API key?", "How do I protect the server?", "Are there API keys?"},
     "API keys say who may use which routes, and how much. They are set in the configuration."},
    {{"Where are the metrics?", "How do I monitor hearth?", "Is there Prometheus?"},
     "GET /metrics has counters for Prometheus, and GET /health says whether the server is ready."},
    {{"What is cache_min_tokens?", "Why are short prompts not cached?", "Why was a short prompt computed anew?"},
     "Prefixes shorter than cache_min_tokens, by default 100, are computed anew, which is cheaper than to reuse them."},
    {{"What is deterministic mode?", "What does deterministic do?", "Are cached replies the same?"},
     "With deterministic: true cached and cold runs are the same, bit for bit."},
    {{"Can hearth read images?", "Does hearth understand images?", "Can I send pictures?", "Can I send sound?"},
     "Yes, with a model that has a projector: hearth serve --mmproj FILE. I can only read text."},
    {{"What is libhearth?", "Can I use hearth as a library?", "Is there a library?"},
     "libhearth is the library in C behind the server. Its header is hearth.h."},
    {{"What is the window?", "What is the context window?", "How long can a prompt be?", "What is context_window?"},
     "The context window says how many tokens a slot can hold, prompt and reply together."},
    {{"What is the time to first token?", "What is TTFT?", "Why does the first token take long?"},
     "It is the time from a request to its first token. With a cached prompt it is short."},
    {{"What is a restore?", "What does restored mean?", "What are restored tokens?"},
     "Restored tokens were read back from a tier of the store instead of being computed."},
    {{"What is a LoRA adapter?", "Can I use adapters?", "Does hearth support LoRA?"},
     "LoRA adapters change a model a little. With hearth each request can choose its own."},
    {{"Is hearth free?", "Which licence does hearth have?", "Can I use hearth for free?"},
     "Yes, hearth has the MIT licence."},
    {{"What is a tool?", "What is a tool call?", "Can you call tools?", "How do tools work?"},
     "A tool is a function that a client offers. I can call it, and use what it returns."},
};
const int talk_n_hearth = sizeof talk_hearth / sizeof *talk_hearth;

/* ---- Turns ---- */

static bool take_turn(struct scene *scene, const struct talk *talk)
{
    struct buf said = {0}, reply = {0};
    int n = 0;
    while (n < 10 && talk->asks[n] != NULL) n++;
    buf_puts(&said, talk->asks[random_chance(scene->random, 25) ? 0 : random_below(scene->random, n)]);
    buf_puts(&reply, talk->answer != NULL ? talk->answer : talk_unable);
    if (random_chance(scene->random, 50)) scene_roughen(scene->random, &said);
    scene_turn(scene, &said, &reply);
    return true;
}

bool talk_turn_small(struct scene *scene)
{
    return take_turn(scene, &talk_small[random_below(scene->random, talk_n_small)]);
}

bool talk_turn_hearth(struct scene *scene)
{
    return take_turn(scene, &talk_hearth[random_below(scene->random, talk_n_hearth)]);
}

bool talk_turn_unable(struct scene *scene)
{
    return take_turn(scene, &PICK(scene->random, unable));
}

void talk_ask_who(struct scene *scene, bool plainly, struct buf *question, struct buf *answer)
{
    const struct talk *talk = plainly ? who : &PICK(scene->random, who);
    int n = 0;
    while (n < 10 && talk->asks[n] != NULL) n++;
    buf_puts(question, talk->asks[plainly ? 0 : random_below(scene->random, n)]);
    if (scene->bot != NULL) {
        buf_printf(answer, "I am %s.", scene->bot);
    } else {
        buf_puts(answer, talk->answer);
    }
}

bool talk_turn_who(struct scene *scene)
{
    struct buf said = {0}, reply = {0};
    talk_ask_who(scene, random_chance(scene->random, 30), &said, &reply);
    if (random_chance(scene->random, 4)) { /* the same again and again, as tests have it */
        struct buf once = said;
        said = (struct buf){0};
        for (int n = random_between(scene->random, 2, 40); n > 0; n--)
            buf_printf(&said, "%s%s", buf_text(&once), n > 1 ? " " : "");
        buf_release(&once);
    }
    scene_turn(scene, &said, &reply);
    return true;
}

void talk_notes(struct scene *scene, size_t length, int n_facts, bool in_system, struct buf *out)
{
    const char *between = random_chance(scene->random, 25) ? "\n" : " ";
    size_t begin = out->len;
    int stated = 0;
    while (out->len - begin < length || stated < n_facts) {
        size_t done = out->len - begin, due = length * (size_t)(2 * stated + 1) / (size_t)(2 * n_facts + 1);
        if (done > 0) buf_puts(out, between);
        if (stated < n_facts && (done >= due || done >= length)) {
            facts_state(scene, in_system, out);
            stated++;
        } else {
            words_sentence(scene->random, out);
        }
    }
}

bool talk_turn_read(struct scene *scene)
{
    static const char *const openings[] = {"Read this: ", "Here are my notes: ", "Read these notes.\n",
                                           "Some notes: ", "Please read this text:\n"};
    struct buf said = {0}, reply = {0};
    buf_puts(&said, PICK(scene->random, openings));
    int facts = random_between(scene->random, 0, 3);
    if (scene->n_facts + facts > FACTS_MAX) facts = 0;
    talk_notes(scene, (size_t)random_between(scene->random, 60, 700), facts, false, &said);
    buf_puts(&reply, "I have read it.");
    scene_turn(scene, &said, &reply);
    return true;
}
