package obs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log" //nolint:depguard // what libraries write to
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"unicode"

	"go.uber.org/goleak"

	"example.com/trawl/pkg/obs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRedactURL(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in, want string }{
		{"no URL", "mail me@site.test", "mail me@site.test"},
		{"no userinfo", "http://site.test/a@b", "http://site.test/a@b"},
		{"query", "http://site.test?a=b@c", "http://site.test?a=b@c"},
		{"user", "http://me@site.test/", "http://***@site.test/"},
		{"password", "http://me:pw@site.test/u", "http://***@site.test/u"},
		{"at in password", "redis://:p@w@host:6379/0", "redis://***@host:6379/0"},
		{"sentence", "get http://a:pw@x.test/ or http://b:pw@y.test/", "get http://***@x.test/ or http://***@y.test/"},
		{"relative", "//me:pw@site.test/", "//***@site.test/"},
		{"backslashes", `http:\\me:pw@site.test\`, `http:\\***@site.test\`},
		{"tabs inside", "http:/\t/me:\npw@site.test/", "http:/\t/***@site.test/"},
		{"more slashes", "http:///me:pw@site.test/", "http:///***@site.test/"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := obs.RedactURL(tt.in); got != tt.want {
				t.Errorf("RedactURL(%q) = %q, want %q", tt.in, got, tt.want)
			}
		})
	}
}

type stringer string

func (s stringer) String() string { return string(s) }

// SEC-07: whatever reaches a log, an entry stays one parseable line without
// control characters, and credentials stay out.
func TestLoggerSEC07(t *testing.T) {
	t.Parallel()
	hostile := []string{
		"a\r\nlevel=error msg=forged", "\x1b[31mred", "\u009b31m", "del\x7f", "k\tlevel=error", "sep\u2028par\u2029",
		"bidi\u202e", "isolate\u2066", "\ufeffmark", "\u00adhyphen", "\U000e0041tag", "\x00nul", "\x1b]0;title\a", "\"quoted\" {json}",
		"//me:sekret@site.test", "\"},{\"level\":\"ERROR\"", "a=b msg=forged", "http://me:sekret@site.test/\r\nHost: other.test", "bad utf8 \xe9",
	}
	for _, format := range []string{obs.FormatJSON, obs.FormatText} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			for _, h := range hostile {
				var buf bytes.Buffer
				log, err := obs.NewLogger(&buf, format, slog.LevelInfo)
				if err != nil {
					t.Fatal(err)
				}
				//nolint:sloglint // a message that an attacker made up is the case
				log.With(slog.String(h, h)).Info(h, slog.String("s", h), slog.Any("err", errors.New(h)), slog.Any("p", stringer(h)),
					slog.Group("g", slog.String("s", h), slog.Any("list", []string{h})), slog.Any("list", []string{"a", h}),
					slog.Any("map", map[string]any{h: []any{h, 1, nil}}), slog.Any("bytes", []byte(h)), slog.Any("key"+h, nil),
					slog.Any("struct", struct{ Name string }{h}), slog.Any("raw", json.RawMessage(h)), slog.Any("ch", func() {}),
					slog.Any("nested", errors.Join(errors.New("a"), fmt.Errorf("b: %w", errors.New(h)))),
					slog.Any("url", &url.URL{Scheme: "http", User: url.UserPassword("me", "sekret"), Host: "site.test", Path: h}))
				line := buf.String()
				if strings.Count(line, "\n") != 1 || !strings.HasSuffix(line, "\n") {
					t.Errorf("%q makes more than one line: %q", h, line)
				}
				if i := strings.IndexFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool {
					return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
				}); i >= 0 {
					t.Errorf("%q leaves a control character in %q", h, line)
				}
				if strings.Contains(line, "sekret") {
					t.Errorf("a password is logged: %q", line)
				}
				if format == obs.FormatJSON && !json.Valid([]byte(line)) {
					t.Errorf("%q makes an entry that is no JSON: %q", h, line)
				}
			}
		})
	}
}

type unprintable struct{ name string }

func (u *unprintable) Error() string { return u.name }

// What is not text keeps its form, and what cannot be printed ends nothing.
func TestLoggerValues(t *testing.T) {
	t.Parallel()
	var missing *unprintable
	for _, tt := range []struct {
		attr slog.Attr
		want string
	}{
		{slog.Any("v", []string{"a", "b"}), `["a","b"]`},
		{slog.Any("v", []int{1, 2}), `[1,2]`},
		{slog.Any("v", map[string]int64{"a": 1 << 60}), `{"a":1152921504606846976}`},
		{slog.Any("v", nil), `null`},
		{slog.Any("v", 1.5), `1.5`},
		{slog.Any("v", true), `true`},
		{slog.Any("v", struct {
			N int `json:"n"`
		}{3}), `{"n":3}`},
		{slog.Any("v", []byte("ab")), `"ab"`},
		{slog.Any("v", error(missing)), `"*obs_test.unprintable that cannot be printed"`},
		{slog.Any("v", make(chan int)), `"0x`},
	} {
		var buf bytes.Buffer
		log, err := obs.NewLogger(&buf, obs.FormatJSON, slog.LevelInfo)
		if err != nil {
			t.Fatal(err)
		}
		log.Info("m", tt.attr)
		var got struct{ V json.RawMessage }
		if err := json.Unmarshal(buf.Bytes(), &got); err != nil || !strings.HasPrefix(string(got.V), tt.want) {
			t.Errorf("%v is logged as %s, want %s", tt.attr, buf.String(), tt.want)
		}
	}
}

func TestLoggerLevelChangesAtRunTime(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	var level slog.LevelVar
	log, err := obs.NewLogger(&buf, obs.FormatText, &level)
	if err != nil {
		t.Fatal(err)
	}
	log.Debug("first")
	level.Set(slog.LevelDebug)
	log.Debug("second")
	if got := buf.String(); strings.Contains(got, "first") || !strings.Contains(got, "second") {
		t.Errorf("logged %q, want only the second record", got)
	}
	if !strings.Contains(buf.String(), "level=DEBUG") {
		t.Errorf("the level is not readable: %q", buf.String())
	}
	if _, err := obs.NewLogger(&buf, "xml", &level); err == nil {
		t.Error("an unknown format is accepted")
	}
}

func TestHandler(t *testing.T) {
	t.Parallel()
	var logs bytes.Buffer
	log, err := obs.NewLogger(&logs, obs.FormatText, slog.LevelInfo)
	if err != nil {
		t.Fatal(err)
	}
	down := errors.New("internal detail")
	var fail bool
	h := obs.NewHandler(obs.NewRegistry(), log,
		obs.Check{Name: "redis", Ready: func(context.Context) error {
			if fail {
				return down
			}
			return nil
		}},
		obs.Check{Name: "clock", Ready: func(context.Context) error { return nil }})

	for _, tt := range []struct {
		path   string
		fail   bool
		status int
		body   string
	}{
		{"/healthz", true, 200, `"ok"`},
		{"/readyz", false, 200, `"ready"`},
		{"/readyz", true, 503, `"failing":["redis"]`},
		{"/metrics", false, 200, "go_goroutines"},
		{"/other", false, 404, ""},
	} {
		fail = tt.fail
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, tt.path, http.NoBody))
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.body) {
			t.Errorf("%s: %d %q, want %d with %q", tt.path, w.Code, w.Body, tt.status, tt.body)
		}
		if strings.Contains(w.Body.String(), down.Error()) {
			t.Errorf("%s answers internal text: %q", tt.path, w.Body)
		}
	}
	if !strings.Contains(logs.String(), down.Error()) {
		t.Error("the cause is not logged")
	}
}

func FuzzClean(f *testing.F) {
	f.Add("http://a:b@c/\x1b")
	f.Add("//@@@x")
	f.Fuzz(func(t *testing.T, s string) {
		if got := obs.Clean(s); strings.IndexFunc(got, unicode.IsControl) >= 0 {
			t.Errorf("Clean(%q) = %q", s, got)
		}
		if got := obs.RedactURL("http://me:hunter2" + s + "@site.test/"); !strings.ContainsAny(s, `/\?# `) &&
			strings.Contains(got, "hunter2") {
			t.Errorf("RedactURL leaves the password before %q: %q", s, got)
		}
	})
}

// What a library writes to the standard log is a record like any other.
func TestInstall(t *testing.T) { // sets the process's default: not parallel
	before := slog.Default()
	flags, out := log.Flags(), log.Writer()
	t.Cleanup(func() { slog.SetDefault(before); log.SetOutput(out); log.SetFlags(flags) })
	var b strings.Builder
	if _, err := obs.Install(&b, obs.FormatJSON, slog.LevelInfo); err != nil {
		t.Fatal(err)
	}
	log.Print("Unsolicited response: \"\x1b[31m\"\nlevel=error http://u:secret@h/")
	var got map[string]any
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil || strings.Count(b.String(), "\n") != 1 {
		t.Errorf("%q is not one JSON line: %v", b.String(), err)
	}
	if strings.Contains(b.String(), "secret") {
		t.Errorf("%q", b.String())
	}
}
