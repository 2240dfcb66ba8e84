package watch

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCleanKeepsTextAndNothingElse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, in, want string }{
		{"plain", "docs.python.org:8000", "docs.python.org:8000"},
		{"other scripts", "bücher.例え עברית हिन्दी", "bücher.例え עברית हिन्दी"},
		{"title of a window", "a\x1b]0;owned\x07b", "a�]0;owned�b"},
		{"erase", "a\x1b[2Jb", "a�[2Jb"},
		{"one-byte CSI", "a\u009b2Jb", "a�2Jb"},
		{"line ends and tabs", "a\r\nb\tc\u2028d\u00a0e", "a  b c d e"},
		{"bidi overrides", "a\u202egpj.exe\u2066b\u200f", "agpj.exeb"},
		{"invisible", "pay\u200bpal\ufeff\u00ad", "paypal"},
		{"not UTF-8", "a\xffb", "a�b"},
		{"private use", "a\ue000b", "a�b"},
		{"a tower of marks", "e\u0301\u0302\u0303\u0304x", "e\u0301\u0302x"},
		{"another width", "☺\ufe0f", "☺"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := Clean(c.in); got != c.want {
				t.Errorf("Clean(%q) = %q, wanted %q", c.in, got, c.want)
			}
		})
	}
}

func TestLinesForATerminalAreCleaned(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, in, plain, coloured string }{
		{"plain", "a\tb\nc\n", "a\tb\nc\n", "a\tb\nc\n"},
		{"line ends of others", "a\r\nb\rc\n", "a\nb c\n", "a\nb c\n"},
		{"colours", "\x1b[1;31mred\x1b[m\n", "red\n", "\x1b[1;31mred\x1b[m\n"},
		{"other escapes", "\x1b]0;x\x07\x1b[2J\x1b\n", "�]0;x��[2J�\n", "�]0;x��[2J�\n"},
		{"bidi", "a\u202eb\n", "ab\n", "ab\n"},
		{"joined", "👩\u200d👧 می\u200cخواهم\n", "👩\u200d👧 می\u200cخواهم\n", "👩\u200d👧 می\u200cخواهم\n"},
		{"not UTF-8", "a\xff\xfeb\n", "a��b\n", "a��b\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := string(cleanLines([]byte(c.in), false)); got != c.plain {
				t.Errorf("without colours %q, wanted %q", got, c.plain)
			}
			if got := string(cleanLines([]byte(c.in), true)); got != c.coloured {
				t.Errorf("with colours %q, wanted %q", got, c.coloured)
			}
		})
	}
}

// A line is broken between words only, keeps its colours, and is indented from the second on.
func TestWrap(t *testing.T) {
	t.Parallel()
	l := line{{text: "  failed ", style: red}, {text: glued("http 404") + ", dns, " + glued("例え 2")}}
	for _, c := range []struct {
		width, indent int
		want          []string
	}{
		{0, 4, []string{"  failed http 404, dns, 例え 2"}},
		{30, 4, []string{"  failed http 404, dns, 例え 2"}},
		{29, 4, []string{"  failed http 404, dns,", "    例え 2"}},
		{17, 2, []string{"  failed", "  http 404, dns,", "  例え 2"}},
		{12, 4, []string{"  failed", "    http 404,", "    dns,", "    例え 2"}},
		{1, 0, []string{"  failed", "http 404,", "dns,", "例え 2"}},
	} {
		var got []string
		for _, part := range l.wrap(c.width, c.indent) {
			got = append(got, part.paint(false))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%d columns:\n%s", c.width, diff)
		}
	}
	if got, want := l.wrap(12, 0)[0].paint(true), "\x1b[31m  failed\x1b[m"; got != want {
		t.Errorf("%q, wanted %q", got, want)
	}
	if got := (line{}).wrap(10, 2); len(got) != 1 || got[0].columns() != 0 {
		t.Errorf("an empty line became %v", got)
	}
}
