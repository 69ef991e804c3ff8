/* hearth-embed OUT.c NAME=FILE...: writes C source with the bytes of files, as the table page_files of
 * serve/page/page_files.h. Runs during the build. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int put_bytes(FILE *out, size_t index, const char *path)
{
    int byte, column = 0;
    FILE *in = fopen(path, "rbe");
    if (in == NULL) return -1;
    fprintf(out, "static const unsigned char file%zu[] = {", index);
    while ((byte = getc(in)) != EOF) fprintf(out, "%s%d,", column++ % 24 == 0 ? "\n" : "", byte);
    fprintf(out, "\n};\n\n");
    return fclose(in);
}

int main(int argc, char **argv)
{
    FILE *out = argc > 1 ? fopen(argv[1], "we") : NULL;
    if (out == NULL) {
        fprintf(stderr, "usage: hearth-embed OUT.c NAME=FILE...\n");
        return EXIT_FAILURE;
    }
    fprintf(out, "#include \"serve/page/page_files.h\"\n\n");
    for (int i = 2; i < argc; i++) {
        const char *path = strchr(argv[i], '=');
        if (path == NULL || put_bytes(out, (size_t)i, path + 1) != 0) {
            fprintf(stderr, "hearth-embed: cannot read %s\n", argv[i]);
            return EXIT_FAILURE;
        }
    }
    fprintf(out, "const struct page_file page_files[] = {\n");
    for (int i = 2; i < argc; i++)
        fprintf(out, "    {\"%.*s\", file%d, sizeof file%d},\n", (int)strcspn(argv[i], "="), argv[i], i, i);
    fprintf(out, "};\n\nconst size_t page_n_files = %d;\n", argc - 2);
    return fclose(out) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
