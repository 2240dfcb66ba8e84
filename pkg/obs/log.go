package obs

import (
	"bytes"
	"encoding/json"
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
// Whatever the attributes hold and are called, a record stays one line without control
// characters, and the userinfo of URLs is replaced: see [Clean]. A value that is no
// string, error or number and does not print itself is logged as its JSON.
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
	a.Key = Clean(a.Key)
	switch a.Value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(Clean(a.Value.String()))
	case slog.KindAny:
		a.Value = cleanValue(a.Value)
	}
	return a
}

func cleanValue(value slog.Value) slog.Value {
	switch v := value.Any().(type) {
	case nil, slog.Level, *slog.Source: // the handler's own
		return value
	case error:
		return slog.StringValue(Clean(said(v, v.Error)))
	case fmt.Stringer:
		return slog.StringValue(Clean(said(v, v.String)))
	case []byte:
		return slog.StringValue(Clean(string(v)))
	default:
		data, err := json.Marshal(v)
		if err != nil {
			return slog.StringValue(Clean(fmt.Sprintf("%+v", v)))
		}
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		var parts any
		if err := d.Decode(&parts); err != nil {
			return slog.StringValue(Clean(string(data)))
		}
		return slog.AnyValue(cleanParts(parts))
	}
}

// cleanParts cleans what JSON was decoded into.
func cleanParts(v any) any {
	switch v := v.(type) {
	case string:
		return Clean(v)
	case []any:
		for i := range v {
			v[i] = cleanParts(v[i])
		}
	case map[string]any:
		clean := make(map[string]any, len(v))
		for name, part := range v {
			clean[Clean(name)] = cleanParts(part)
		}
		return clean
	}
	return v
}

// said returns what v says of itself. A nil pointer in an interface must not end the process
// that wanted to log it.
func said(v any, say func() string) (text string) {
	defer func() {
		if r := recover(); r != nil {
			text = fmt.Sprintf("%T that cannot be printed", v)
		}
	}()
	return say()
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
	if harmless(s) {
		return s // as nearly all that is logged: an event of a request would take twice as long
	}
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

// harmless reports whether s is printable ASCII without an @, in front of which a userinfo would stand.
func harmless(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '@' {
			return false
		}
	}
	return true
}

func unprintable(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
}
