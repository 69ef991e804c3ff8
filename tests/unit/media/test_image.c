/* Images of each format against the pixels that they were made of; bad ones, and bombs. */
#include "samples.h"

static const struct media_image_limits limits = {.most_pixels = 1 << 20, .most_side = 4096};

enum { WIDTH = 37, HEIGHT = 23 };

/* Decodes the file; fails the test where it cannot be. */
static struct media_image decoded(const struct buf *file)
{
    struct media_bytes bytes = bytes_of(file);
    struct media_image measured, image;
    hearth_error error = {0};
    if (media_image_measure(&bytes, &limits, &measured, &error) != HEARTH_OK) fail_msg("%s", error.message);
    assert_null(measured.rgb);
    if (media_image_decode(&bytes, &limits, &image, &error) != HEARTH_OK) fail_msg("%s", error.message);
    assert_true(image.width == measured.width && image.height == measured.height);
    return image;
}

static void expect_pixels(struct buf *file, const uint8_t *rgb, uint32_t width, uint32_t height, int most)
{
    struct media_image image = decoded(file);
    assert_true(image.width == width && image.height == height);
    assert_in_range(difference(image.rgb, rgb, width, height), 0, most);
    free(image.rgb);
    buf_release(file);
}

static void pixels_come_as_they_were(void **state)
{
    (void)state;
    uint8_t *rgb = gradient(WIDTH, HEIGHT);
    struct buf png = png_of(rgb, WIDTH, HEIGHT, PNG_FORMAT_RGB), webp = webp_of(rgb, WIDTH, HEIGHT),
               jpeg = jpeg_of(rgb, WIDTH, HEIGHT, 0);
    expect_pixels(&png, rgb, WIDTH, HEIGHT, 0);
    expect_pixels(&webp, rgb, WIDTH, HEIGHT, 0);
    expect_pixels(&jpeg, rgb, WIDTH, HEIGHT, 40);
    free(rgb);
}

static void transparent_pixels_lie_on_white(void **state)
{
    (void)state;
    const uint8_t rgba[] = {10, 20, 30, 255, 10, 20, 30, 0}, rgb[] = {10, 20, 30, 255, 255, 255};
    struct buf png = png_of(rgba, 2, 1, PNG_FORMAT_RGBA);
    expect_pixels(&png, rgb, 2, 1, 0);
    uint8_t *bytes = NULL;
    size_t size = WebPEncodeLosslessRGBA(rgba, 2, 1, 8, &bytes);
    struct buf webp = {0};
    buf_append(&webp, bytes, size);
    WebPFree(bytes);
    expect_pixels(&webp, rgb, 2, 1, 0);
}

static void a_gif_s_first_frame_is_decoded_interlaced_or_not(void **state)
{
    (void)state;
    uint8_t *grey = mem_alloc((size_t)WIDTH * HEIGHT), *rgb = mem_alloc((size_t)WIDTH * HEIGHT * 3);
    for (int i = 0; i < WIDTH * HEIGHT; i++) {
        grey[i] = (uint8_t)(i * 7 % 256);
        memset(rgb + i * 3, grey[i] == 0 ? 255 : grey[i], 3); /* 0 is transparent */
    }
    for (int interlaced = 0; interlaced < 2; interlaced++) {
        struct buf gif = gif_of(grey, WIDTH, HEIGHT, interlaced);
        expect_pixels(&gif, rgb, WIDTH, HEIGHT, 0);
    }
    free(grey);
    free(rgb);
}

/* The corner that is dark in the upright picture, of which the file has another one there. */
static void photographs_are_turned_upright(void **state)
{
    (void)state;
    enum { SIDE = 16, CORNER = 4 };
    /* For each orientation the stored corner that becomes the upper left one: bit 0 right, bit 1 below. */
    static const unsigned corners[] = {0, 0, 1, 3, 2, 0, 2, 3, 1};
    for (uint8_t orientation = 1; orientation <= 8; orientation++) {
        uint32_t width = SIDE * 2, height = SIDE;
        uint8_t *rgb = mem_alloc((size_t)width * height * 3);
        memset(rgb, 255, (size_t)width * height * 3);
        for (uint32_t y = 0; y < CORNER; y++)
            for (uint32_t x = 0; x < CORNER; x++) {
                uint32_t at_x = (corners[orientation] & 1) != 0 ? width - 1 - x : x;
                uint32_t at_y = (corners[orientation] & 2) != 0 ? height - 1 - y : y;
                memset(rgb + ((size_t)at_y * width + at_x) * 3, 0, 3);
            }
        struct buf file = jpeg_of(rgb, width, height, orientation);
        struct media_image image = decoded(&file);
        bool turned = orientation >= 5;
        assert_int_equal(image.width, turned ? height : width);
        if (image.rgb[0] > 60) fail_msg("orientation %d: the corner is elsewhere", orientation);
        assert_true(image.rgb[(image.width - 1) * 3] > 200);
        free(image.rgb);
        free(rgb);
        buf_release(&file);
    }
}

/* ---- Pictures for printing ---- */

/* A picture of one colour, in four inks, as Adobe's programs have them: 0 is all of the ink. */
static struct buf inks_of(const uint8_t inks[4], uint32_t side)
{
    uint8_t *pixels = mem_grow(NULL, (size_t)side * side, 4);
    for (size_t i = 0; i < (size_t)side * side; i++) memcpy(pixels + 4 * i, inks, 4);
    unsigned char *bytes = NULL;
    unsigned long size = 0;
    tjhandle jpeg = tjInitCompress();
    assert_int_equal(tjCompress2(jpeg, pixels, (int)side, 0, (int)side, TJPF_CMYK, &bytes, &size, TJSAMP_444, 100, 0),
                     0);
    struct buf file = {0};
    buf_append(&file, bytes, size);
    tjFree(bytes);
    tjDestroy(jpeg);
    free(pixels);
    return file;
}

/* The segment in which Adobe's programs say so; its last byte tells how the inks are stored. */
static char *adobe_of(const struct buf *file)
{
    char *at = memmem(file->v, file->len, "Adobe", 5);
    assert_non_null(at);
    return at;
}

static void expect_colour(struct buf *file, uint8_t red, uint8_t green, uint8_t blue)
{
    struct media_image image = decoded(file);
    const uint8_t expected[] = {red, green, blue};
    for (size_t i = 0; i < (size_t)image.width * image.height * 3; i++)
        if (abs(image.rgb[i] - expected[i % 3]) > 3)
            fail_msg("%d %d %d is not %d %d %d", image.rgb[0], image.rgb[1], image.rgb[2], red, green, blue);
    free(image.rgb);
    buf_release(file);
}

static void inks_become_colours(void **state)
{
    (void)state;
    static const struct {
        uint8_t inks[4], rgb[3];
    } rows[] = {{{255, 255, 255, 255}, {255, 255, 255}}, {{0, 255, 255, 255}, {0, 255, 255}},
                {{255, 0, 255, 255}, {255, 0, 255}},     {{255, 255, 0, 255}, {255, 255, 0}},
                {{255, 255, 255, 0}, {0, 0, 0}},         {{200, 100, 50, 128}, {100, 50, 25}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf file = inks_of(rows[i].inks, 16);
        expect_colour(&file, rows[i].rgb[0], rows[i].rgb[1], rows[i].rgb[2]);
    }
}

/* What is compressed as brightness and two differences reads, where the file says that these are inks, as a brightness
 * of 255 - 55, and twice 128. */
static void inks_that_are_stored_as_they_are_or_not_inverted_are_read_as_well(void **state)
{
    (void)state;
    static const uint8_t grey[] = {55, 55, 55, 100};
    struct buf plain = inks_of(grey, 16), by_others = inks_of(grey, 16);
    adobe_of(&plain)[11] = 0;
    adobe_of(&by_others)[0] = 'O';
    expect_colour(&plain, 200 * 100 / 255, 128 * 100 / 255, 128 * 100 / 255);
    expect_colour(&by_others, 55 * 155 / 255, 127 * 155 / 255, 127 * 155 / 255);
}

/* ---- BMP ---- */

struct bmp_kind {
    uint32_t header, bits, compression;
    bool is_top_down;
    uint32_t masks[4];
};

static void put_number(struct buf *file, uint32_t n, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) buf_append(file, &(uint8_t){(uint8_t)(n >> 8 * i)}, 1);
}

static void put_bmp_header(struct buf *file, const struct bmp_kind *kind, uint32_t n_colours)
{
    const bool is_old = kind->header == 12, has_masks = kind->masks[0] != 0;
    const uint32_t after = kind->header == 40 && has_masks ? 12 : 0;
    buf_append(file, "BM\0\0\0\0\0\0\0\0", 10);
    put_number(file, 14 + kind->header + after + n_colours * (is_old ? 3 : 4), 4);
    put_number(file, kind->header, 4);
    put_number(file, WIDTH, is_old ? 2 : 4);
    put_number(file, kind->is_top_down ? 0u - HEIGHT : HEIGHT, is_old ? 2 : 4);
    put_number(file, 1, 2);
    put_number(file, kind->bits, 2);
    if (is_old) return;
    const uint32_t rest[] = {kind->compression, 0, 0, 0, n_colours, 0};
    for (size_t i = 0; i < 6 && file->len < 14 + kind->header; i++) put_number(file, rest[i], 4);
    for (size_t i = 0; i < 4 && has_masks && file->len < 14 + kind->header + after; i++)
        put_number(file, kind->masks[i], 4);
    while (file->len < 14 + kind->header + after) put_number(file, 0, 1);
}

/* The colours of a table: the n-th has n in its red, and what tells the others apart. */
static void put_bmp_table(struct buf *file, const struct bmp_kind *kind, uint32_t n_colours)
{
    for (uint32_t i = 0; i < n_colours; i++)
        put_number(file, i | (255 - i) << 8 | (i ^ 0x55) << 16, kind->header == 12 ? 3 : 4);
}

static uint32_t index_at(uint32_t x, uint32_t y, uint32_t bits)
{
    return (x / 5 + 3 * y) % (1u << bits);
}

static void expect_indexed(struct buf *file, uint32_t bits)
{
    uint8_t *rgb = mem_grow(NULL, (size_t)WIDTH * HEIGHT, 3), *at = rgb;
    for (uint32_t y = 0; y < HEIGHT; y++)
        for (uint32_t x = 0; x < WIDTH; x++, at += 3) {
            uint32_t i = index_at(x, y, bits);
            at[0] = (uint8_t)(i ^ 0x55), at[1] = (uint8_t)(255 - i), at[2] = (uint8_t)i;
        }
    expect_pixels(file, rgb, WIDTH, HEIGHT, 0);
    free(rgb);
}

static uint32_t row_of(const struct bmp_kind *kind, uint32_t y)
{
    return kind->is_top_down ? y : HEIGHT - 1 - y;
}

static struct buf indexed_bmp_of(const struct bmp_kind *kind)
{
    struct buf file = {0};
    put_bmp_header(&file, kind, 1u << kind->bits);
    put_bmp_table(&file, kind, 1u << kind->bits);
    for (uint32_t y = 0; y < HEIGHT; y++) {
        uint8_t row[(WIDTH + 3) / 4 * 4] = {0};
        size_t len = (WIDTH * kind->bits + 31) / 32 * 4;
        for (uint32_t x = 0; x < WIDTH; x++)
            row[x * kind->bits / 8] |=
                (uint8_t)(index_at(x, row_of(kind, y), kind->bits) << (8 - kind->bits - x * kind->bits % 8));
        buf_append(&file, row, len);
    }
    return file;
}

static void bmps_with_a_table_of_colours_are_decoded(void **state)
{
    (void)state;
    static const uint32_t headers[] = {12, 40, 108, 124}, bits[] = {1, 4, 8};
    for (size_t h = 0; h < 4; h++)
        for (size_t b = 0; b < 3; b++)
            for (int down = 0; down < (headers[h] == 12 ? 1 : 2); down++) {
                struct buf file = indexed_bmp_of(&(struct bmp_kind){headers[h], bits[b], 0, down, {0}});
                expect_indexed(&file, bits[b]);
            }
}

/* Runs of five, as the picture has them; every third row literally, and where it begins behind a jump. */
static void put_runs(struct buf *file, uint32_t bits, uint32_t y)
{
    if (y % 3 == 0) {
        uint8_t row[WIDTH + 3] = {0};
        for (uint32_t x = 0; x < WIDTH; x++)
            row[x * bits / 8] |= (uint8_t)(index_at(x, y, bits) << (bits == 8 ? 0 : x % 2 == 0 ? 4 : 0));
        buf_append(file, (const uint8_t[]){0, WIDTH}, 2);
        buf_append(file, row, (WIDTH * bits / 8 + 1 + 1) / 2 * 2);
    } else {
        for (uint32_t x = 0; x < WIDTH; x += 5) {
            uint32_t i = index_at(x, y, bits), n = x + 5 < WIDTH ? 5 : WIDTH - x;
            if (i == 0 && x + n < WIDTH)
                buf_append(file, (const uint8_t[]){0, 2, (uint8_t)n, 0}, 4);
            else
                buf_append(file, (const uint8_t[]){(uint8_t)n, (uint8_t)(bits == 8 ? i : i << 4 | i)}, 2);
        }
    }
}

static struct buf runs_bmp_of(uint32_t bits)
{
    struct bmp_kind kind = {40, bits, bits == 8 ? 1 : 2, false, {0}};
    struct buf file = {0};
    put_bmp_header(&file, &kind, 1u << bits);
    put_bmp_table(&file, &kind, 1u << bits);
    for (uint32_t y = HEIGHT; y-- > 0;) {
        put_runs(&file, bits, y);
        buf_append(&file, y > 0 ? "\0\0" : "\0\1", 2); /* the row ends, or the picture */
    }
    return file;
}

static void runs_of_a_bmp_are_decoded(void **state)
{
    (void)state;
    for (uint32_t bits = 4; bits <= 8; bits += 4) {
        struct buf file = runs_bmp_of(bits);
        expect_indexed(&file, bits);
    }
}

static struct buf masked_bmp_of(const struct bmp_kind *kind, const uint8_t *rgb)
{
    static const uint32_t of_16[] = {0x7c00, 0x3e0, 0x1f, 0}, of_32[] = {0xff0000, 0xff00, 0xff, 0};
    const uint32_t *masks = kind->masks[0] != 0 ? kind->masks : kind->bits == 16 ? of_16 : of_32;
    struct buf file = {0};
    put_bmp_header(&file, kind, 0);
    for (uint32_t y = 0; y < HEIGHT; y++) {
        for (uint32_t x = 0; x < WIDTH; x++) {
            uint32_t pixel = masks[3];
            for (size_t i = 0; i < 3; i++)
                pixel |= (uint32_t)((uint64_t)rgb[(row_of(kind, y) * WIDTH + x) * 3 + i] * masks[i] / 255) & masks[i];
            put_number(&file, pixel, kind->bits / 8);
        }
        put_number(&file, 0, (4 - WIDTH * kind->bits / 8 % 4) % 4);
    }
    return file;
}

static void bmps_with_red_green_and_blue_are_decoded(void **state)
{
    (void)state;
    static const struct {
        struct bmp_kind kind;
        int most; /* difference, of fewer bits a colour */
    } rows[] = {{{12, 24, 0, false, {0}}, 0},
                {{40, 24, 0, false, {0}}, 0},
                {{40, 24, 0, true, {0}}, 0},
                {{40, 32, 0, false, {0}}, 0},
                {{40, 16, 0, false, {0}}, 9},
                {{40, 16, 3, false, {0xf800, 0x7e0, 0x1f, 0}}, 9},
                {{40, 32, 3, true, {0xff, 0xff00, 0xff0000, 0}}, 0},
                {{56, 32, 3, false, {0xff0000, 0xff00, 0xff, 0xff000000}}, 0},
                {{124, 32, 3, false, {0xff000000, 0xff0000, 0xff00, 0xff}}, 0},
                {{124, 32, 3, false, {0x3ff00000, 0xffc00, 0x3ff, 0}}, 1}};
    uint8_t *rgb = gradient(WIDTH, HEIGHT);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf file = masked_bmp_of(&rows[i].kind, rgb);
        expect_pixels(&file, rgb, WIDTH, HEIGHT, rows[i].most);
    }
    free(rgb);
}

static void a_bmp_s_transparent_pixels_lie_on_white_unless_all_are(void **state)
{
    (void)state;
    const struct bmp_kind kind = {56, 32, 3, false, {0xff0000, 0xff00, 0xff, 0xff000000}};
    uint8_t *rgb = gradient(WIDTH, HEIGHT);
    struct buf half = masked_bmp_of(&kind, rgb), none = masked_bmp_of(&kind, rgb);
    for (size_t i = 70 + 3; i < none.len; i += 4) none.v[i] = 0;
    expect_pixels(&none, rgb, WIDTH, HEIGHT, 0);
    for (size_t i = 70 + 3; i < half.len; i += 8) half.v[i] = 0;
    struct media_image image = decoded(&half);
    const uint8_t *last = image.rgb + (size_t)(HEIGHT - 1) * WIDTH * 3; /* the file's first row */
    assert_memory_equal(last, "\xff\xff\xff", 3);
    assert_memory_equal(last + 3, rgb + (size_t)(HEIGHT - 1) * WIDTH * 3 + 3, 3);
    free(image.rgb);
    buf_release(&half);
    free(rgb);
}

/* ---- Bad ones ---- */

static void expect_refused(const struct buf *file, int code, const char *says)
{
    struct media_bytes bytes = bytes_of(file);
    struct media_image image;
    hearth_error error = {0};
    assert_int_equal(media_image_decode(&bytes, &limits, &image, &error), code);
    if (strstr(error.message, says) == NULL) fail_msg("%s", error.message);
    assert_null(image.rgb);
}

static void what_is_cut_off_is_refused_wherever_it_is_cut(void **state)
{
    (void)state;
    uint8_t *rgb = gradient(WIDTH, HEIGHT), *grey = mem_alloc((size_t)WIDTH * HEIGHT);
    struct buf files[] = {png_of(rgb, WIDTH, HEIGHT, PNG_FORMAT_RGB),
                          webp_of(rgb, WIDTH, HEIGHT),
                          jpeg_of(rgb, WIDTH, HEIGHT, 6),
                          gif_of(grey, WIDTH, HEIGHT, true),
                          inks_of((const uint8_t[]){1, 2, 3, 4}, 64),
                          runs_bmp_of(8),
                          masked_bmp_of(&(struct bmp_kind){124, 32, 3, false, {0xff0000, 0xff00, 0xff, 0}}, rgb)};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        size_t whole = files[i].len;
        for (size_t len = 0; len < whole * 3 / 4; len += 1 + len / 16) {
            files[i].len = len;
            expect_refused(&files[i], HEARTH_INVALID, "");
        }
        buf_release(&files[i]);
    }
    free(rgb);
    free(grey);
}

/* Whatever one byte of a BMP says, nothing is read or written that is not there (under the sanitizers), and a file of
 * which no byte is wrong is decoded. */
static void a_bmp_in_which_a_byte_is_wrong_does_no_harm(void **state)
{
    (void)state;
    struct buf file = runs_bmp_of(4);
    for (size_t i = 2; i < file.len; i++) {
        const char right = file.v[i];
        for (int flip = 1; flip < 256; flip = flip * 2 + 1) {
            struct media_bytes bytes = bytes_of(&file);
            struct media_image image;
            file.v[i] = (char)(right ^ flip);
            if (media_image_decode(&bytes, &limits, &image, NULL) == HEARTH_OK) free(image.rgb);
        }
        file.v[i] = right;
    }
    expect_indexed(&file, 4);
}

static void a_bmp_of_another_kind_is_refused_and_says_so(void **state)
{
    (void)state;
    static const struct bmp_kind kinds[] = {{40, 8, 4, false, {0}}, {40, 24, 1, false, {0}}, {40, 7, 0, false, {0}}};
    for (size_t i = 0; i < 3; i++) {
        struct buf file = {0};
        put_bmp_header(&file, &kinds[i], 0);
        expect_refused(&file, HEARTH_INVALID, "the BMP is damaged or cut off: its bits a pixel, or its compression");
        buf_release(&file);
    }
}

/* Some hundred bytes that announce a picture of gigabytes: refused by what they announce. */
static void a_bomb_is_refused_by_its_header(void **state)
{
    (void)state;
    uint8_t *rgb = gradient(8, 8);
    struct buf png = png_of(rgb, 8, 8, PNG_FORMAT_RGB), jpeg = jpeg_of(rgb, 8, 8, 0);
    memcpy(png.v + 16, "\0\0\x0f\xff\0\0\x0f\xff", 8); /* 4,095 x 4,095; the check sum of its header is wrong now */
    struct media_bytes bytes = bytes_of(&png);
    struct media_image image;
    assert_int_not_equal(media_image_decode(&bytes, &limits, &image, NULL), HEARTH_OK);
    for (size_t i = 0; i + 9 < jpeg.len; i++)
        if (memcmp(jpeg.v + i, "\xff\xc0", 2) == 0) memcpy(jpeg.v + i + 5, "\xea\x60\xea\x60", 4); /* 60,000 a side */
    expect_refused(&jpeg, HEARTH_TOO_LONG, "a side may have 4096");
    buf_release(&png);
    buf_release(&jpeg);
    free(rgb);
}

static void limits_name_themselves(void **state)
{
    (void)state;
    uint8_t *rgb = gradient(2000, 600);
    struct buf png = png_of(rgb, 2000, 600, PNG_FORMAT_RGB);
    expect_refused(&png, HEARTH_TOO_LONG, "2000 x 600 pixels: an image may have 1048576 of them");
    buf_release(&png);
    free(rgb);
    struct buf text = {0};
    buf_puts(&text, "hello");
    expect_refused(&text, HEARTH_INVALID, "a file of an unknown type is no image: PNG, JPEG, WebP, GIF and BMP are");
    buf_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pixels_come_as_they_were),
        cmocka_unit_test(transparent_pixels_lie_on_white),
        cmocka_unit_test(a_gif_s_first_frame_is_decoded_interlaced_or_not),
        cmocka_unit_test(photographs_are_turned_upright),
        cmocka_unit_test(inks_become_colours),
        cmocka_unit_test(inks_that_are_stored_as_they_are_or_not_inverted_are_read_as_well),
        cmocka_unit_test(bmps_with_a_table_of_colours_are_decoded),
        cmocka_unit_test(runs_of_a_bmp_are_decoded),
        cmocka_unit_test(bmps_with_red_green_and_blue_are_decoded),
        cmocka_unit_test(a_bmp_s_transparent_pixels_lie_on_white_unless_all_are),
        cmocka_unit_test(a_bmp_in_which_a_byte_is_wrong_does_no_harm),
        cmocka_unit_test(a_bmp_of_another_kind_is_refused_and_says_so),
        cmocka_unit_test(what_is_cut_off_is_refused_wherever_it_is_cut),
        cmocka_unit_test(a_bomb_is_refused_by_its_header),
        cmocka_unit_test(limits_name_themselves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
