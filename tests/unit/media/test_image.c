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
    struct buf files[] = {png_of(rgb, WIDTH, HEIGHT, PNG_FORMAT_RGB), webp_of(rgb, WIDTH, HEIGHT),
                          jpeg_of(rgb, WIDTH, HEIGHT, 6), gif_of(grey, WIDTH, HEIGHT, true)};
    for (size_t i = 0; i < 4; i++) {
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
    expect_refused(&text, HEARTH_INVALID, "a file of an unknown type is no image: PNG, JPEG, WebP and GIF are");
    buf_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pixels_come_as_they_were),
        cmocka_unit_test(transparent_pixels_lie_on_white),
        cmocka_unit_test(a_gif_s_first_frame_is_decoded_interlaced_or_not),
        cmocka_unit_test(photographs_are_turned_upright),
        cmocka_unit_test(what_is_cut_off_is_refused_wherever_it_is_cut),
        cmocka_unit_test(a_bomb_is_refused_by_its_header),
        cmocka_unit_test(limits_name_themselves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
