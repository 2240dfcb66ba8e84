package obs

import (
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"unicode"
)

// Log formats.
const (
	FormatJSON = "json" // one object a line, for machines
	FormatText = "text" // key=value, for people
)

// NewLogger returns a logger that writes to w in the given format, from the
// level that level holds at the time of the call: setting it changes a running
// process. An unknown format is an error.
//
// Whatever the attributes hold, a record stays one line without control
// characters, and the userinfo of URLs is replaced: see [Clean]. That holds for
// strings, errors and everything that prints itself; other values are the
// caller's to keep clean.
func NewLogger(w io.Writer, format string, level slog.Leveler) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: cleanAttr}
	switch format {
	case FormatJSON:
		return slog.New(slog.NewJSONHandler(w, options)), nil
	case FormatText:
		return slog.New(slog.NewTextHandler(w, options)), nil
	default:
		return nil, fmt.Errorf("unknown log format %q: use %s or %s", format, FormatJSON, FormatText)
	}
}

// Install makes the logger of the process: as [NewLogger], and what libraries write to
// the standard log goes through it too. net/http does: it quotes what a site sends
// unasked, which must neither break the format nor escape the level.
func Install(w io.Writer, format string, level slog.Leveler) (*slog.Logger, error) {
	l, err := NewLogger(w, format, level)
	if err == nil {
		slog.SetDefault(l)
	}
	return l, err
}

func cleanAttr(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(Clean(a.Value.String()))
	case slog.KindAny:
		// The built-in attributes (time, level, source) are not among these types.
		switch v := a.Value.Any().(type) {
		case error:
			a.Value = slog.StringValue(Clean(v.Error()))
		case slog.Level:
		case fmt.Stringer:
			a.Value = slog.StringValue(Clean(v.String()))
		}
	}
	return a
}

// userinfo matches what stands between the slashes and the last @ of an
// authority. Any two slashes begin one, backslashes included, and tabs and line
// breaks count for nothing: URL parsers of the WHATWG kind read them so, and a
// log must not be the place that finds out.
var userinfo = regexp.MustCompile(`([/\\][\t\r\n]*[/\\])[^/\\?# ]*@`)

// RedactURL replaces the userinfo of every URL in s by "***", also where s is
// a sentence around one. Nothing else changes.
func RedactURL(s string) string {
	if !strings.Contains(s, "@") {
		return s
	}
	return userinfo.ReplaceAllString(s, "${1}***@")
}

// Clean makes s safe to log: the userinfo of URLs is redacted, and every
// control, format or line-separating character becomes its \u escape. The JSON
// encoder alone escapes the C0 controls only, and lets DEL, the C1 controls
// (U+009B starts a terminal sequence) and the bidirectional overrides through.
func Clean(s string) string {
	s = RedactURL(s)
	if strings.IndexFunc(s, unprintable) < 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	for _, r := range s {
		if unprintable(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func unprintable(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
}
