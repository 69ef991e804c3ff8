#include "corpus/words.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char *const colors[] = {"red",  "blue",   "green", "yellow", "black",  "white",     "purple", "pink",
                                     "grey", "orange", "brown", "violet", "silver", "gold",      "teal",   "beige",
                                     "cyan", "ivory",  "olive", "maroon", "indigo", "turquoise", "coral",  "lilac"};
static const char *const foods[] = {"pizza",   "pasta", "soup",    "rice",   "bread",    "cheese",
                                    "noodles", "salad", "curry",   "cake",   "beans",    "pancakes",
                                    "apples",  "plums", "waffles", "olives", "potatoes", "tofu",
                                    "lentils", "sushi", "yoghurt", "honey",  "toast",    "porridge"};
static const char *const animals[] = {"dog",   "cat",   "horse", "rabbit", "parrot", "goose", "sheep",  "duck",
                                      "frog",  "eagle", "bear",  "goat",   "owl",    "shark", "fox",    "cow",
                                      "lion",  "wolf",  "snake", "tiger",  "whale",  "bee",   "mouse",  "otter",
                                      "camel", "crow",  "heron", "beaver", "lynx",   "seal",  "badger", "hamster"};
static const char *const cities[] = {"Lisbon", "Oslo",   "Bergen", "Rome",   "Paris",  "London", "Berlin", "Madrid",
                                     "Vienna", "Prague", "Tokyo",  "Lima",   "Cairo",  "Delhi",  "Dublin", "Zürich",
                                     "Köln",   "Malmö",  "Łódź",   "Québec", "Bogotá", "東京",   "Αθήνα",  "Одеса"};
static const char *const jobs[] = {"teacher", "doctor", "baker",  "pilot",    "painter", "farmer",  "nurse",  "cook",
                                   "lawyer",  "tailor", "sailor", "gardener", "writer",  "plumber", "singer", "judge"};
static const char *const places[] = {"drawer", "kitchen", "garden", "cellar", "box",    "garage", "attic",   "hall",
                                     "bag",    "shed",    "tower",  "office", "closet", "barn",   "library", "basket"};
static const char *const days[] = {"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"};
static const char *const weathers[] = {"sunny", "rain", "snow",  "cloudy", "windy", "clear", "fog",
                                       "storm", "hail", "humid", "cold",   "warm",  "dry",   "mild"};
static const char *const things[] = {
    "bicycle", "boat",   "car",     "key",   "ticket", "locker", "phone",    "guitar", "house",   "garden", "book",
    "room",    "desk",   "lamp",    "coat",  "camera", "clock",  "piano",    "kettle", "ladder",  "mirror", "candle",
    "hat",     "bottle", "glove",   "chair", "flag",   "spoon",  "shoe",     "brush",  "drum",    "wheel",  "rope",
    "tent",    "map",    "mug",     "bell",  "coin",   "stone",  "gate",     "safe",   "printer", "router", "laptop",
    "server",  "vault",  "project", "badge", "parcel", "train",  "passport", "violin"};

/* ---- Made-up words ---- */

static const char *const onsets[] = {"b",  "c",  "d",  "f",   "g",  "h",  "j",  "k",  "l",  "m",  "n",  "p",  "r",
                                     "s",  "t",  "v",  "w",   "y",  "z",  "br", "ch", "dr", "fl", "gr", "kl", "kr",
                                     "ph", "pl", "qu", "sch", "sh", "sl", "st", "th", "tr", "x",  "gw", "rh"};
static const char *const vowels[] = {"a",  "e",  "i",  "o",  "u",  "a",  "e",  "i", "o",  "u",
                                     "ai", "au", "ea", "ei", "ie", "oo", "ou", "y", "io", "ia"};
static const char *const codas[] = {"",   "",   "",   "",   "",   "l",  "m",  "n",  "r",  "s", "t", "x", "ck",
                                    "ld", "ng", "nd", "rt", "tt", "ll", "nn", "sk", "th", "d", "k", "p", "b"};

static void put_syllables(struct random *random, int n, struct buf *out)
{
    for (int i = 0; i < n; i++) {
        if (i > 0 || random_chance(random, 75)) buf_puts(out, PICK(random, onsets));
        buf_puts(out, PICK(random, vowels));
        buf_puts(out, PICK(random, codas));
    }
}

/* ---- Beyond ASCII ---- */

static void put_character(struct buf *out, uint32_t c)
{
    if (c < 0x80) {
        buf_append(out, (char[]){(char)c}, 1);
    } else if (c < 0x800) {
        buf_append(out, (char[]){(char)(0xc0 | c >> 6), (char)(0x80 | (c & 63))}, 2);
    } else if (c < 0x10000) {
        buf_append(out, (char[]){(char)(0xe0 | c >> 12), (char)(0x80 | (c >> 6 & 63)), (char)(0x80 | (c & 63))}, 3);
    } else {
        buf_append(out,
                   (char[]){(char)(0xf0 | c >> 18), (char)(0x80 | (c >> 12 & 63)), (char)(0x80 | (c >> 6 & 63)),
                            (char)(0x80 | (c & 63))},
                   4);
    }
}

/* Blocks of letters and signs that are assigned throughout. */
static const struct block {
    uint32_t first, last;
    int least, most; /* characters in a row */
    bool capital;    /* the first block of an alphabet's two: one of these, then small letters, 32 further on */
} blocks[] = {
    {0x4e00, 0x9fa5, 1, 4, false},   {0x4e00, 0x9fa5, 1, 4, false},   {0x3041, 0x3096, 2, 5, false},
    {0x30a1, 0x30fa, 2, 5, false},   {0xac00, 0xd7a3, 1, 4, false},   {0x0410, 0x042f, 3, 7, true},
    {0x0391, 0x03a1, 3, 7, true},    {0x05d0, 0x05ea, 3, 6, false},   {0x0621, 0x063a, 3, 6, false},
    {0x0905, 0x0914, 2, 4, false},   {0x1f600, 0x1f64f, 1, 3, false}, {0x1f300, 0x1f320, 1, 3, false},
    {0x1f400, 0x1f4fc, 1, 3, false}, {0x2600, 0x26ff, 1, 2, false},   {0x20a0, 0x20bf, 1, 1, false},
};

static void put_block(struct random *random, struct buf *out)
{
    struct block block = PICK(random, blocks);
    int n = random_between(random, block.least, block.most);
    for (int i = 0; i < n; i++) {
        uint32_t c = block.first + (uint32_t)random_below(random, (int)(block.last - block.first + 1));
        put_character(out, block.capital && i > 0 ? c + 32 : c);
    }
}

static const char *const accents[] = {"á", "é", "í", "ó", "ú", "à", "è", "ì", "ò", "ù", "ä", "ö", "ü", "ë", "ï", "â",
                                      "ê", "î", "ô", "û", "ã", "õ", "ñ", "ç", "å", "ø", "æ", "ß", "č", "š", "ž", "ř",
                                      "ł", "ń", "ś", "ź", "ż", "ą", "ę", "ő", "ű", "ğ", "ı", "ş", "ț", "ă", "þ", "ð"};

/* A made-up name with one or two letters that have accents. */
static void put_accented(struct random *random, struct buf *out)
{
    struct buf word = {0};
    put_syllables(random, random_between(random, 1, 3), &word);
    if (word.len == 0) buf_puts(&word, "o");
    word.v[0] = (char)(word.v[0] - 'a' + 'A');
    size_t at = 1 + (size_t)random_below(random, (int)word.len);
    buf_append(out, word.v, at < word.len ? at : word.len);
    buf_puts(out, PICK(random, accents));
    if (at < word.len) buf_append(out, word.v + at, word.len - at);
    if (random_chance(random, 25)) buf_puts(out, PICK(random, accents));
    buf_release(&word);
}

static void put_foreign(struct random *random, struct buf *out)
{
    if (random_chance(random, 45)) {
        put_accented(random, out);
    } else {
        put_block(random, out);
    }
}

/* ---- Values ---- */

static void put_name(struct random *random, struct buf *out)
{
    static const char *const known[] = {"Ottilie", "Leopold", "Otto",  "Heinrich", "Marek", "Suvi", "Anneke",
                                        "Anna",    "Robert",  "Maria", "Tom",      "Zoë",   "José"};
    if (random_chance(random, 9)) {
        put_foreign(random, out);
    } else if (random_chance(random, 6)) {
        buf_puts(out, PICK(random, known));
    } else {
        size_t at = out->len;
        put_syllables(random, random_between(random, 2, 4), out);
        out->v[at] = (char)(out->v[at] - 'a' + 'A');
    }
}

static void put_digits(struct random *random, int n, struct buf *out)
{
    for (int i = 0; i < n; i++) {
        int lowest = i == 0 && n > 1 ? 1 : 0;
        buf_printf(out, "%d", random_between(random, lowest, 9));
    }
}

/* Capitals and digits; sometimes small letters, digits alone, or two parts with a dash. */
static void put_code(struct random *random, struct buf *out)
{
    static const char capitals[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    static const char small[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    static const char numbers[] = "0123456789";
    int form = random_below(random, 10), n = random_between(random, 3, 9), dash = form == 9 && n > 4 ? n / 2 : 0;
    const char *from = form == 7 ? small : form == 8 ? numbers : capitals;
    for (int i = 0; i < n; i++) {
        if (i > 0 && i == dash) buf_puts(out, "-");
        buf_append(out, from + random_below(random, (int)strlen(from)), 1);
    }
}

static void put_word(struct random *random, struct buf *out)
{
    switch (random_below(random, 8)) {
    case 0:
        buf_puts(out, PICK(random, things));
        break;
    case 1:
        buf_puts(out, PICK(random, foods));
        break;
    case 2:
        buf_puts(out, PICK(random, animals));
        break;
    default:
        put_syllables(random, random_between(random, 1, 3), out);
    }
}

static void put_any(struct random *random, struct buf *out)
{
    static const enum value kinds[] = {VALUE_CODE,   VALUE_CODE, VALUE_CODE, VALUE_CODE, VALUE_NUMBER,
                                       VALUE_NUMBER, VALUE_NAME, VALUE_NAME, VALUE_WORD, VALUE_COLOR};
    words_value(random, PICK(random, kinds), out);
}

/* One of the table mostly, else a word that nobody knows. */
#define COMMON(table)                                                                                                  \
    do {                                                                                                               \
        if (random_chance(random, 65)) {                                                                               \
            buf_puts(out, PICK(random, table));                                                                        \
        } else {                                                                                                       \
            put_syllables(random, random_between(random, 2, 3), out);                                                  \
        }                                                                                                              \
    } while (0)

void words_value(struct random *random, enum value kind, struct buf *out)
{
    switch (kind) {
    case VALUE_NAME:
        put_name(random, out);
        break;
    case VALUE_COLOR:
        COMMON(colors);
        break;
    case VALUE_FOOD:
        COMMON(foods);
        break;
    case VALUE_ANIMAL:
        COMMON(animals);
        break;
    case VALUE_JOB:
        COMMON(jobs);
        break;
    case VALUE_PLACE:
        COMMON(places);
        break;
    case VALUE_WEATHER:
        COMMON(weathers);
        break;
    case VALUE_CITY:
        if (random_chance(random, 50)) {
            buf_puts(out, PICK(random, cities));
        } else {
            put_name(random, out);
        }
        break;
    case VALUE_DAY:
        buf_puts(out, PICK(random, days));
        break;
    case VALUE_NUMBER:
        put_digits(random, random_between(random, 1, 4), out);
        break;
    case VALUE_AGE:
        buf_printf(out, "%d", random_between(random, 3, 99));
        break;
    case VALUE_TIME:
        buf_printf(out, "%02d:%02d", random_below(random, 24), random_below(random, 60));
        break;
    case VALUE_CODE:
        put_code(random, out);
        break;
    case VALUE_ANY:
        put_any(random, out);
        break;
    case VALUE_WORD:
        put_word(random, out);
        break;
    case VALUE_PHRASE:
        words_several(random, random_between(random, 2, 6), false, out);
        break;
    case VALUE_FOREIGN:
        put_foreign(random, out);
        break;
    }
}

const char *words_thing(struct random *random)
{
    return PICK(random, things);
}

void words_several(struct random *random, int n, bool mixed, struct buf *out)
{
    static const enum value kinds[] = {VALUE_WORD, VALUE_WORD, VALUE_WORD,   VALUE_WORD,   VALUE_NAME,
                                       VALUE_CODE, VALUE_NAME, VALUE_NUMBER, VALUE_FOREIGN};
    for (int i = 0; i < n; i++) {
        if (i > 0) buf_puts(out, " ");
        words_value(random, mixed ? PICK(random, kinds) : VALUE_WORD, out);
    }
}

/* ---- Filler ---- */

/* {n} a name, {c} a city, {w} a word, {t} a thing, {d} a day, {k} a number, {s} a place, {o} a color */
static const char *const sentences[] = {"The {w} was near the {s}.",
                                        "{n} saw a {w} in {c}.",
                                        "On {d} the {t} was closed.",
                                        "There are {k} of them.",
                                        "{n} and {n} went to {c}.",
                                        "The train to {c} was late.",
                                        "It had rained for {k} days.",
                                        "The {o} {t} is old.",
                                        "Somebody left a {w} behind the {t}.",
                                        "The shop sells {w} and {w}.",
                                        "{n} likes {w}.",
                                        "We met {n} on {d}.",
                                        "The boss was tired on {d}.",
                                        "A {w} flew over the roof.",
                                        "The neighbor has a {o} {t}.",
                                        "{n} works with {n}.",
                                        "The {t} looks good.",
                                        "The road to {c} is long.",
                                        "My sister bought {k} {w}.",
                                        "The tea was cold.",
                                        "The break begins at {k}.",
                                        "{n} said {w} again.",
                                        "They play loud music in {c}.",
                                        "The {s} is under the roof.",
                                        "Nobody knows where the {w} came from.",
                                        "{c} is a quiet town.",
                                        "The {w} {w} was sold for {k} coins.",
                                        "In the {s} there is a {w}.",
                                        "{n} wrote about the {w}.",
                                        "The meeting is about {w} and {w}."};

static void put_marker(struct random *random, char marker, struct buf *out)
{
    static const struct {
        char marker;
        enum value value;
    } markers[] = {{'n', VALUE_NAME},   {'c', VALUE_CITY},  {'w', VALUE_WORD}, {'d', VALUE_DAY},
                   {'k', VALUE_NUMBER}, {'s', VALUE_PLACE}, {'o', VALUE_COLOR}};
    for (size_t i = 0; i < sizeof markers / sizeof *markers; i++)
        if (markers[i].marker == marker) words_value(random, markers[i].value, out);
    if (marker == 't') buf_puts(out, PICK(random, things));
}

void words_sentence(struct random *random, struct buf *out)
{
    const char *text = PICK(random, sentences);
    while (*text != '\0') {
        size_t plain = strcspn(text, "{");
        buf_append(out, text, plain);
        text += plain;
        if (*text == '\0') break;
        put_marker(random, text[1], out);
        text += 3;
    }
}
