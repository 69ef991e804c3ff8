/* What files are, by their first bytes. */
#include "samples.h"

static enum media_format format_of(const char *text, size_t len)
{
    return media_format_of(&(struct media_bytes){(const uint8_t *)text, len});
}

#define FORMAT(text) format_of(text, sizeof(text) - 1)

static void first_bytes_decide(void **state)
{
    (void)state;
    assert_int_equal(FORMAT("\x89PNG\r\n\x1a\n...."), MEDIA_PNG);
    assert_int_equal(FORMAT("\xff\xd8\xff\xe0...."), MEDIA_JPEG);
    assert_int_equal(FORMAT("RIFF1234WEBPVP8 "), MEDIA_WEBP);
    assert_int_equal(FORMAT("RIFF1234WAVEfmt "), MEDIA_WAV);
    assert_int_equal(FORMAT("RIFF1234AVI LIST"), MEDIA_VIDEO);
    assert_int_equal(FORMAT("GIF89a...."), MEDIA_GIF);
    assert_int_equal(FORMAT("BM1234\0\0\0\0\x36\0\0\0\x28\0\0\0"), MEDIA_BMP);
    assert_int_equal(FORMAT("BM1234\0\0\0\0\x1a\0\0\0\x0c\0\0\0"), MEDIA_BMP);
    assert_int_equal(FORMAT("fLaC...."), MEDIA_FLAC);
    assert_int_equal(FORMAT("ID3\x04...."), MEDIA_MP3);
    assert_int_equal(FORMAT("\xff\xfb\x90\x64...."), MEDIA_MP3);
    assert_int_equal(FORMAT("\0\0\0\x20"
                            "ftypisom"),
                     MEDIA_VIDEO);
    assert_int_equal(FORMAT("\x1a\x45\xdf\xa3...."), MEDIA_VIDEO);
    assert_int_equal(FORMAT("%PDF-1.7"), MEDIA_PDF);
}

static void what_only_looks_like_one_is_unknown(void **state)
{
    (void)state;
    assert_int_equal(FORMAT(""), MEDIA_UNKNOWN);
    assert_int_equal(FORMAT("R"), MEDIA_UNKNOWN);
    assert_int_equal(FORMAT("RIFF"), MEDIA_UNKNOWN);
    assert_int_equal(FORMAT("RIFF1234WEB"), MEDIA_UNKNOWN);
    assert_int_equal(FORMAT("<svg xmlns"), MEDIA_UNKNOWN);
    assert_int_equal(FORMAT("\xff\xff\xff\xff"), MEDIA_UNKNOWN);
    assert_int_equal(FORMAT("BM......"), MEDIA_UNKNOWN);
    assert_int_equal(FORMAT("BM1234\0\0\0\0\x36\0\0\0\x29\0\0\0"), MEDIA_UNKNOWN);
    assert_int_equal(FORMAT("BM is a car, if one adds a W"), MEDIA_UNKNOWN);
    assert_int_equal(FORMAT("hello, world"), MEDIA_UNKNOWN);
}

static void each_format_has_a_kind_and_a_name(void **state)
{
    (void)state;
    for (enum media_format format = MEDIA_UNKNOWN; format <= MEDIA_PDF; format++) {
        assert_int_equal(media_kind_of(format) == MEDIA_NOTHING, format == MEDIA_UNKNOWN);
        assert_true(media_format_name(format)[0] != '\0');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_bytes_decide),
        cmocka_unit_test(what_only_looks_like_one_is_unknown),
        cmocka_unit_test(each_format_has_a_kind_and_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
