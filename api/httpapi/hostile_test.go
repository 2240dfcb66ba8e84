package httpapi

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
)

// Bodies that two readers could read differently, or that no reader should, are refused
// and named (SEC-09, JOB-04).
func TestHostileBodies(t *testing.T) {
	t.Parallel()
	const seed = `"seed_url":"http://site.test/"`
	many := func(entry string, n int) string { return strings.Repeat(entry+",", n-1) + entry }
	malformed, invalid := []string(nil), func(rules ...string) []string { return rules }
	for _, tt := range []struct {
		name, body string
		status     int
		want       []string
	}{
		{"100,000 brackets", strings.Repeat("[", 100_000), 400, malformed},
		{"100,000 brackets in a field", `{"urls":` + strings.Repeat("[", 100_000), 400, malformed},
		{"100,000 brackets, closed", `{"urls":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + "}", 400, malformed},
		{"100,000 objects, closed", strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000), 400, malformed},
		{"brackets in a string", `{"tags":["` + strings.Repeat("[", 64) + `"],` + seed + "}", 202, nil},

		{"a million numbers", `{"urls":[` + many("1", 1_000_000) + "]}", 422, func() (all []string) {
			for i := range maxFaults {
				all = append(all, fmt.Sprintf("urls[%d]:type", i))
			}
			return append(all, "body:"+crawl.RuleMoreFaults)
		}()},
		{"600,000 texts", `{"urls":[` + many(`""`, 600_000) + "]}", 422, invalid("urls:max")},
		{"a million texts", `{"urls":[` + many(`""`, 1_000_000) + "]}", 413, malformed},
		{"10,001 URLs", `{"urls":[` + many(`"http://site.test/"`, 10_001) + "]}", 422, invalid("urls:max")},
		{"10,000 URLs", `{"urls":[` + many(`"http://site.test/"`, 10_000) + "]}", 202, nil},
		{"200,000 objects", `{"zz":[` + many(`{"a":1}`, 200_000) + "]," + seed + "}", 422, invalid("zz:unknown", "body:max")},

		{"JOB-04 given twice", `{` + seed + "," + seed + "}", 422, invalid("seed_url:duplicate")},
		{"JOB-04 escaped name", `{` + seed + `,"\u0073eed_url":"http://b.test/"}`, 422, invalid("seed_url:duplicate")},
		{"JOB-04 escaped nested name", `{` + seed + `,"headers":{"A":"1","\u0041":"2"}}`, 422, invalid("headers.A:duplicate")},
		{"JOB-04 letter case", `{` + seed + `,"SEED_URL":"http://b.test/"}`, 422, invalid("SEED_URL:duplicate")},
		{"JOB-04 long s", `{` + seed + `,"` + "\u017f" + `eed_url":"http://b.test/"}`, 422, invalid("\u017feed_url:duplicate")},
		{"JOB-04 long s alone", `{"` + "\u017f" + `eed_url":"http://b.test/"}`, 422, invalid("\u017feed_url:unknown")},
		{"JOB-04 long s escaped", `{` + seed + `,"\u017feed_url":"http://b.test/"}`, 422, invalid("\u017feed_url:duplicate")},
		{"JOB-04 Kelvin sign", `{` + seed + `,"webhook":{},"webhoo` + "\u212a" + `":{}}`, 422, invalid("webhoo\u212a:duplicate")},
		{"JOB-04 header in two cases", `{` + seed + `,"headers":{"a":"1","A":"2"}}`, 422, invalid("headers.A:duplicate")},
		{"JOB-04 null and value", `{"seed_url":null,` + seed + "}", 422, invalid("seed_url:duplicate")},
		{"empty name", `{` + seed + `,"":1,"zz":{"":1,"":2}}`, 422, invalid(`"":unknown`, "zz:unknown", `zz."":duplicate`)},
		{"names of other languages", `{` + seed + `,"__proto__":{"x":1},"constructor":1}`, 422, invalid("__proto__:unknown", "constructor:unknown")},

		{"1e999", `{` + seed + `,"max_pages":1e999}`, 422, invalid("max_pages:type")},
		{"10^400", `{` + seed + `,"max_pages":1` + strings.Repeat("0", 400) + "}", 422, invalid("max_pages:range")},
		{"a million digits", `{` + seed + `,"max_pages":` + strings.Repeat("9", 1_000_000) + "}", 422, invalid("max_pages:range")},
		{"2^63", `{` + seed + `,"max_pages":9223372036854775808}`, 422, invalid("max_pages:range")},
		{"-0", `{` + seed + `,"max_pages":-0}`, 422, invalid("max_pages:min")},
		{"-0 where 0 is allowed", `{` + seed + `,"max_depth":-0}`, 202, nil},
		{"JOB-03 1.0", `{` + seed + `,"max_pages":1.0}`, 422, invalid("max_pages:type")},
		{"1e2", `{` + seed + `,"max_pages":1e2}`, 422, invalid("max_pages:type")},
		{"text", `{` + seed + `,"max_pages":"1"}`, 422, invalid("max_pages:type")},
		{"01", `{` + seed + `,"max_pages":01}`, 400, malformed},
		{"+1", `{` + seed + `,"max_pages":+1}`, 400, malformed},
		{"0x1", `{` + seed + `,"max_pages":0x1}`, 400, malformed},
		{"Infinity", `{` + seed + `,"max_pages":Infinity}`, 400, malformed},

		{"overlong", `{"seed_url":"http://site.test/` + "\xc0\xaf" + `"}`, 400, malformed},
		{"encoded surrogate", `{"seed_url":"http://site.test/` + "\xed\xa0\x80" + `"}`, 400, malformed},
		{"beyond Unicode", `{"seed_url":"http://site.test/` + "\xf4\x90\x80\x80" + `"}`, 400, malformed},
		{"cut character", `{"seed_url":"http://site.test/` + "\xe2\x82" + `"}`, 400, malformed},
		{"not UTF-8 in a name", "{\"\xff\":1," + seed + "}", 400, malformed},
		{"not UTF-8 behind", "{" + seed + "}\xff", 400, malformed},
		{"byte order mark", "\ufeff{" + seed + "}", 400, malformed},
		{"UTF-16", "\xff\xfe{\x00}\x00", 400, malformed},
		{"UTF-16 without mark", "{\x00}\x00", 400, malformed},
		{"lone surrogate in a name", `{"\uD83D":1,` + seed + "}", 400, malformed},
		{"lone surrogate", `{` + seed + `,"tags":["\udc00"]}`, 400, malformed},
		{"surrogate and its text", `{` + seed + `,"tags":["\ud83d\\ude00"]}`, 400, malformed},

		{"NUL", "{" + seed + "\x00}", 400, malformed},
		{"NUL in a text", "{\"seed_url\":\"http://site.test/\x00\"}", 400, malformed},
		{"NUL escaped", `{"seed_url":"http://site.test/\u0000x"}`, 422, invalid("seed_url:control_character")},
		{"NUL in a name", `{` + seed + `,"seed_url\u0000":"x"}`, 422, invalid("seed_url\x00:unknown")},
		{"SEC-07 line break in a URL", `{"seed_url":"http://site.test/\r\nHost: other.test"}`, 422, invalid("seed_url:control_character")},

		{"two objects", "{" + seed + "}{" + seed + "}", 422, invalid("body:trailing_data")},
		{"bracket behind", "{" + seed + "}]", 422, invalid("body:trailing_data")},
		{"NUL behind", "{" + seed + "}\x00", 422, invalid("body:trailing_data")},
		{"comment", "{" + seed + "/**/}", 400, malformed},
		{"line comment", "{" + seed + " // x\n}", 400, malformed},
		{"comment behind", "{" + seed + "} // x", 422, invalid("body:trailing_data")},
		{"comma behind", "{" + seed + ",}", 400, malformed},
		{"single quotes", "{'seed_url':'http://site.test/'}", 400, malformed},
		{"no quotes", `{seed_url:"http://site.test/"}`, 400, malformed},
		{"space of Unicode", "{\u00a0" + seed + "}", 400, malformed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			a := b.call("POST", "/v1/jobs", tt.body)
			if tt.status == 202 {
				if a.status != 202 || len(b.created) != 1 {
					t.Errorf("%d %s, %d stored", a.status, a.body, len(b.created))
				}
				return
			}
			code := map[int]crawl.Code{400: crawl.CodeMalformed, 413: crawl.CodeBodyTooLarge, 422: crawl.CodeInvalid}[tt.status]
			p := a.wantProblem(t, tt.status, code)
			if d := cmp.Diff(tt.want, fieldRules(p)); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if len(b.created) != 0 || len(a.body) > 64<<10 {
				t.Errorf("%d stored, an answer of %d bytes", len(b.created), len(a.body))
			}
		})
	}
}

// SEC-09: what a body costs is bounded by its size, whatever stands in it. Not parallel:
// it looks at what the whole process allocates.
func TestHostileBodiesAreCheap(t *testing.T) {
	b := newBench(t)
	const size = 512 << 10 // beyond every bound but that of the body
	fill := func(open, entry, end string) string {
		return open + strings.Repeat(entry, (size-len(open)-len(end))/len(entry)) + end
	}
	for name, body := range map[string]string{
		"brackets":         strings.Repeat("[", size),
		"objects in depth": fill("", `{"a":`, ""),
		"quotes":           fill("{", `""`, "}"),
		"backslashes":      fill(`{"`, `\\`, `":1}`),
		"surrogates":       fill(`{"`, `\ud83d\ude00`, `":1}`),
		"texts":            fill(`{"urls":["x"`, `,""`, "]}"),
		"numbers":          fill(`{"urls":[1`, ",1", "]}"),
		"lists":            fill(`{"zz":[1`, ",[1]", "]}"),
		"objects":          fill(`{"zz":[1`, `,{"a":1}`, "]}"),
		"empty objects":    fill(`{"zz":[1`, ",{}", "]}"),
		"objects of urls":  fill(`{"urls":[1`, ",{}", "]}"),
		"digits":           fill(`{"max_pages":`, "9", "}"),
		"a long name":      fill(`{"`, "n", `":1}`),
		"a folded name":    fill(`{"`, "\u212a", `":1}`),
		"a long duration":  fill(`{"time_limit":"`, "1h", `x"}`),
		"a wrong duration": fill(`{"time_limit":[1`, ",1", "]}"),
		"a long header":    fill(`{"headers":{"A":"`, "v", `"}}`),
		"a long scope":     fill(`{"seed_url":"http://a.test/","scope":"`, "s", `"}`),
		"a long URL":       fill(`{"seed_url":"http://a.test/`, "é", `"}`),
		"a long pattern":   fill(`{"seed_url":"http://a.test/","include":["re:`, "(a*)*", `"]}`),
		"many patterns":    fill(`{"seed_url":"http://a.test/","include":["re:a"`, `,"re:(a|b){9}"`, `]}`),
		"tags":             fill(`{"seed_url":"http://a.test/","tags":["a"`, `,"\u0000"`, "]}"),
		"space":            fill("{", " ", "}"),
		"space behind":     fill(oneURL, "\n", "x"),
	} {
		r := request("POST", "/v1/jobs", body)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		a := b.do(r)
		runtime.ReadMemStats(&after)
		if a.status/100 != 4 {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
		// One text that is all of the body is decoded, folded or copied a few times; a list of the
		// most entries grows step by step.
		if spent := int64(after.TotalAlloc - before.TotalAlloc); spent > 10*size+64*maxEntries {
			t.Errorf("%s: %d bytes were spent on a body of %d", name, spent, len(body))
		}
		if n := after.Mallocs - before.Mallocs; n > 150_000 {
			t.Errorf("%s: %d allocations", name, n)
		}
		if len(a.body) > 64<<10 {
			t.Errorf("%s: an answer of %d bytes", name, len(a.body))
		}
	}
	if len(b.created) != 0 {
		t.Errorf("%d jobs were stored", len(b.created))
	}
}

// What a spec would put into the requests of a crawl is refused by name, with nothing
// stored, and with no value in the answer or the log (SEC-07).
func TestHostileSpecs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, fields string
		want         []string
	}{
		{"line break in user_agent", `"user_agent":"Bot\r\nX-Evil: 1"`, []string{"user_agent:pattern"}},
		{"line feed in user_agent", `"user_agent":"Bot\nX-Evil: 1"`, []string{"user_agent:pattern"}},
		{"NUL in user_agent", `"user_agent":"Bot\u0000X-Evil"`, []string{"user_agent:pattern"}},
		{"line separator in user_agent", `"user_agent":"Bot\u2028X-Evil: 1"`, []string{"user_agent:pattern"}},
		{"line break in a header", `"headers":{"A":"x\r\nX-Evil: 1"}`, []string{"headers.A:pattern"}},
		{"line break in the name of one", `"headers":{"A\r\nX-Evil":"1"}`, []string{"headers.A\r\nX-Evil:pattern"}},
		{"colon in the name of one", `"headers":{"A: 1\r\nX":"1"}`, []string{"headers.A: 1\r\nX:pattern"}},
		{
			"headers of the connection", `"headers":{"Connection":"close","Content-Length":"9","Host":"X-Evil","Transfer-Encoding":"chunked"}`,
			[]string{
				"headers.Connection:forbidden", "headers.Content-Length:forbidden", "headers.Host:forbidden", "headers.Transfer-Encoding:forbidden",
			},
		},
		{"header of a proxy", `"headers":{"X-Forwarded-For":"127.0.0.1"}`, []string{"headers.X-Forwarded-For:forbidden"}},
		{"control character in a tag", `"tags":["a\u001b[31m"]`, []string{"tags[0]:pattern"}},
		{"SEC-07 line separator in a tag", `"tags":["a\u2028level=error"]`, []string{"tags[0]:pattern"}},
		{"direction override in a tag", `"tags":["a\u202e"]`, []string{"tags[0]:pattern"}},
		{"control character in a pattern", `"include":["/a\u0000"],"exclude":["re:\u001b"]`, []string{"include[0]:pattern", "exclude[0]:pattern"}},
		{"control character in a parameter", `"drop_params":["a\r\nb"]`, []string{"drop_params[0]:pattern"}},
		{"SEL-06 nested repetition", `"include":["re:((a{100}){100}){100}"]`, []string{"include[0]:pattern"}},
		{"SEL-06 long repetition of a class", `"include":["re:\\pL{1000}"]`, []string{"include[0]:pattern"}},
		{"SEL-06 look-ahead", `"exclude":["re:(?!x)"]`, []string{"exclude[0]:pattern"}},
		{
			"SEC-07 webhook", `"webhook":{"url":"http://r.test/\r\nX-Evil: 1","events":["job.\u0000"],"secret":"whsec_\nEvil"}`,
			[]string{"webhook.url:control_character", "webhook.events[0]:enum", "webhook.secret:pattern"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			a := b.call("POST", "/v1/jobs", `{"seed_url":"http://site.test/",`+tt.fields+"}")
			p := a.wantProblem(t, 422, crawl.CodeInvalid)
			if d := cmp.Diff(tt.want, fieldRules(p)); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			for _, f := range p.Errors {
				if strings.Contains(f.Message, "Evil") || strings.ContainsFunc(f.Message, unicode.IsControl) {
					t.Errorf("the message repeats what was sent: %q", f.Message)
				}
			}
			if len(b.created) != 0 || strings.Contains(b.logs.String(), "Evil") {
				t.Errorf("%d stored, log %s", len(b.created), b.logs)
			}
		})
	}
}

// SEL-06: a preview of long URLs and large expressions says what is the matter, and takes a
// bounded time for each.
func TestCostlyPreview(t *testing.T) {
	t.Parallel()
	long := "http://site.test/" + strings.Repeat("a", crawl.MaxURLBytes-17)
	expression := "re:" + strings.Repeat(".{999}", 4) + "x"
	var got preview
	newBench(t).call("POST", "/v1/jobs/preview", fmt.Sprintf(
		`{"seed_url":"http://site.test/","exclude":[%q],"check":[%q,"http://site.test/a"]}`, expression, long,
	)).decode(t, 200, &got)
	if v := got.Items[0]; v.Admitted || *v.Rule != crawl.RuleSteps || !strings.Contains(v.Message, "too long") || !got.Items[1].Admitted {
		t.Errorf("got %+v", got)
	}
}

// exchangeRaw sends bytes that no client of the standard library would, and then one
// sound request, and returns the answers until the server closes.
func exchangeRaw(t *testing.T, b *bench, raw string) []answer {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", b.server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Minute)) // for a server that hangs
	go func() {
		// What is not read when the server closes does not matter.
		_, _ = io.WriteString(conn, raw+"GET /healthz HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n\r\n")
	}()
	var all []answer
	for in := bufio.NewReader(conn); ; {
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			return all
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil {
			t.Fatalf("an answer is cut: %v", err)
		}
		all = append(all, answer{res.StatusCode, res.Header, string(body)})
	}
}

// wantCleanLog checks that each entry is one of ours, and holds nothing that a caller
// could break a line or a terminal with (SEC-07).
func wantCleanLog(t *testing.T, b *bench) {
	t.Helper()
	for line := range strings.Lines(b.logs.String()) {
		var entry struct {
			Level, Msg string
		}
		line = strings.TrimSuffix(line, "\n")
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Level == "ERROR" {
			t.Errorf("logged %q, %v", line, err)
		}
		if strings.ContainsFunc(line, unprintable) || strings.Contains(line, "sekret") {
			t.Errorf("logged %q", line)
		}
	}
}

func unprintable(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
}

// Header lines that mean one thing to one reader and another to the next are refused, and
// end their connection. All that is asked for by what stands behind them is not done.
func TestHostileHeaderLines(t *testing.T) {
	t.Parallel()
	post := func(lines, body string) string {
		return "POST /v1/jobs HTTP/1.1\r\nHost: api.test\r\nContent-Type: application/json\r\nX-API-Key: " + keyA + "\r\n" + lines + "\r\n" + body
	}
	sized := fmt.Sprintf("Content-Length: %d\r\n", len(oneURL))
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(oneURL), oneURL)
	const tail = "\r\n\r\n"
	for _, tt := range []struct {
		name, raw string
		status    int // of the first answer
		jobs      int
		goesOn    bool // whether the connection is used again
	}{
		{"sound", post(sized, oneURL), 202, 1, true},
		{"sound, chunked", post("Transfer-Encoding: chunked\r\n", chunked), 202, 1, true},

		{"NUL in a value", post(sized+"X-A: a\x00b\r\n", oneURL), 400, 0, false},
		{"escape in a value", post(sized+"X-A: \x1b[31m\r\n", oneURL), 400, 0, false},
		{"DEL in a value", post(sized+"X-A: \x7f\r\n", oneURL), 400, 0, false},
		{"return in a value", post(sized+"X-A: a\rX-API-Key: b\r\n", oneURL), 400, 0, false},
		{"NUL in a name", post(sized+"X\x00A: a\r\n", oneURL), 400, 0, false},
		{"space before the colon", post(sized+"X-A : a\r\n", oneURL), 400, 0, false},
		{"key with a space before the colon", post(sized+"Idempotency-Key : a\r\n", oneURL), 400, 0, false},
		{"no name", post(sized+": a\r\n", oneURL), 400, 0, false},
		{"no colon", post(sized+"nonsense\r\n", oneURL), 400, 0, false},
		{"name of another alphabet", post(sized+"X-\u212aey: a\r\n", oneURL), 400, 0, false},
		{"vertical tab in an Idempotency-Key", post(sized+"Idempotency-Key: a\x0bb\r\n", oneURL), 400, 0, false},
		{"JOB-05 tab in an Idempotency-Key", post(sized+"Idempotency-Key: k\tlevel=error\r\n", oneURL), 400, 0, true},
		{"JOB-05 Latin-1 in an Idempotency-Key", post(sized+"Idempotency-Key: \xe9\r\n", oneURL), 400, 0, true},
		{"JOB-05 two Idempotency-Keys", post(sized+"Idempotency-Key: one\r\nIdempotency-Key: two\r\n", oneURL), 400, 0, true},
		{"JOB-05 folded Idempotency-Key", post(sized+"Idempotency-Key: one\r\n two\r\n", oneURL), 400, 0, true},
		{"two keys", post(sized+"X-API-Key: "+keyB+"\r\n", oneURL), 401, 0, true},
		{"no Host", "GET /v1/jobs HTTP/1.1" + tail, 400, 0, false},
		{"two Hosts", post(sized+"Host: other.test\r\n", oneURL), 400, 0, false},
		{"bad Host", "GET /v1/jobs HTTP/1.1\r\nHost: a b" + tail, 400, 0, false},
		{"70,000 bytes of headers", post(strings.Repeat("X-A: aaaaaaaaaa\r\n", 5000)+sized, oneURL), 431, 0, false},
		{"no such version", "GET /v1/jobs HTTP/9.9\r\nHost: a" + tail, 505, 0, false},
		{"no version", "GET /v1/jobs" + tail, 400, 0, false},
		{"method of control characters", "G\x1bT /v1/jobs HTTP/1.1\r\nHost: a" + tail, 400, 0, false},
		{"HTTP/2 in clear", "PRI * HTTP/2.0" + tail + "SM" + tail, 404, 0, false},
		{"unknown Expect", post(sized+"Expect: nonsense\r\n", oneURL), 417, 0, false},

		// Shapes of request smuggling: RFC 9112 s6.3.
		{"two lengths", post(sized+"Content-Length: 0\r\n", oneURL), 400, 0, false},
		{"list of lengths", post("Content-Length: 0, 5\r\n", oneURL), 400, 0, false},
		{"signed length", post("Content-Length: +28\r\n", oneURL), 400, 0, false},
		{"negative length", post("Content-Length: -1\r\n", oneURL), 400, 0, false},
		{"hexadecimal length", post("Content-Length: 0x1c\r\n", oneURL), 400, 0, false},
		{"length of 20 digits", post("Content-Length: 99999999999999999999\r\n", oneURL), 400, 0, false},
		{"coding in another spelling", post("Transfer-Encoding: xchunked\r\n", chunked), 501, 0, false},
		{"coding with a vertical tab", post("Transfer-Encoding: \x0bchunked\r\n", chunked), 400, 0, false},
		{"two codings", post("Transfer-Encoding: gzip, chunked\r\n", chunked), 501, 0, false},
		{"coding twice", post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", chunked), 501, 0, false},
		{"coding with a space before the colon", post("Transfer-Encoding : chunked\r\n", chunked), 400, 0, false},
		{"chunk with a sign", post("Transfer-Encoding: chunked\r\n", "+5\r\n{\"a\":\r\n0"+tail), 400, 0, false},
		{"chunk of 2^64 bytes", post("Transfer-Encoding: chunked\r\n", "fffffffffffffffff\r\n{\"a\":\r\n0"+tail), 400, 0, false},
		{"chunk that is no number", post("Transfer-Encoding: chunked\r\n", "zz\r\n{}\r\n0"+tail), 400, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			start(t, b)
			all := exchangeRaw(t, b, tt.raw)
			want := 1
			if tt.goesOn {
				want = 2
			}
			if len(all) != want || all[0].status != tt.status || tt.goesOn && all[1].status != 200 {
				t.Errorf("%d answers: %+v", len(all), all)
			}
			if len(b.created) != tt.jobs {
				t.Errorf("%d jobs stored, want %d", len(b.created), tt.jobs)
			}
			wantCleanLog(t, b)
		})
	}
}

// A request with a length and chunks is read by its chunks, as RFC 9112 s6.3 has it: what
// a reader of the length would take for a second request is never one for this reader.
func TestChunksOverrideTheLength(t *testing.T) {
	t.Parallel()
	smuggled := "DELETE /v1/jobs/x HTTP/1.1\r\nHost: api.test\r\nX-API-Key: " + keyA + "\r\n\r\n"
	body := fmt.Sprintf(`{"urls":["http://site.test/"],"tags":[%q]}`, strings.ReplaceAll(smuggled, "\r\n", " "))
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	for _, lines := range []string{
		"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
		"Transfer-Encoding: chunked\r\nContent-Length: 100000\r\n",
	} {
		b := newBench(t)
		start(t, b)
		all := exchangeRaw(t, b, "POST /v1/jobs HTTP/1.1\r\nHost: api.test\r\nContent-Type: application/json\r\nX-API-Key: "+keyA+"\r\n"+lines+"\r\n"+chunked)
		// The tag is too long: the body was read to its end, as one.
		if len(all) == 0 || all[0].status != 422 || !strings.Contains(all[0].body, "tags[0]") {
			t.Fatalf("%q: %+v", lines, all)
		}
		for _, a := range all[1:] {
			if a.status != 200 {
				t.Errorf("%q: %+v", lines, a)
			}
		}
		if logs := b.logs.String(); strings.Contains(logs, "DELETE") {
			t.Errorf("%q: %s", lines, logs)
		}
	}
}

// SEC-10: however a path is spelled, what is no id is answered as an unknown one is, and
// never reaches the store; an encoded slash is a character and parts nothing.
func TestHostilePathsSEC10(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	own, others := b.add("a", crawl.Completed).ID, b.add("b", crawl.Completed).ID
	b.records[crawl.JobRef{Tenant: "a", ID: own}] = make([]crawl.Page, 1)
	start(t, b)
	ids := []string{
		"%2e%2e", "..", ".", "%2e", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "..%2f..%2f", "..%5c..%5c", "%252e%252e%252f", "%2F", "%00", "%c0%ae%c0%ae",
		"%c0%af", "%e0%80%af", "%ff", "%ed%a0%80", "%EF%BC%8E%EF%BC%8E", "%e2%80%ae" + own, own + "%00", own + "%00.json", own + "%0d%0aX-Evil:%201",
		own + "%20", "%20" + own, own + "%09", own + ".", own + ".json", own + "%2F", own + "%2Frecords", own + "%2fcancel", own + "%3f", own + "%23",
		own + ";x=1", own + "%3Bx", own + "*", "*", "%2A", "{b}:" + others, "%7Bb%7D:" + others, "b:" + others, others, "{" + own + "}", strings.ToUpper(own),
		own[:len(own)-1], own + "a", strings.Repeat("a", 30_000), strings.Repeat("%61", 10_000), "preview", "-", "_", "0", "null", "undefined", "%E2%84%AA" + own[1:],
		"6BA7B810-9DAD-11D1-80B4-00C04FD430C8", "KEYS%20*", "t1%2f..%2ft2", "..;", "%u002e%u002e", "%", "%2", "%zz",
	}
	var routes []string
	for _, r := range b.server.engine.Routes() {
		if strings.HasPrefix(r.Path, "/v1/jobs/:id") && r.Method != http.MethodHead {
			routes = append(routes, r.Method+" "+r.Path)
		}
	}
	if len(routes) < 7 {
		t.Fatalf("only %q", routes)
	}
	bodies := map[string]string{}
	for _, route := range routes {
		for _, id := range ids {
			method, path, _ := strings.Cut(strings.Replace(route, ":id", id, 1), " ")
			if path == "/v1/jobs/preview" || strings.HasPrefix(path, "/v1/jobs/preview/") {
				continue // another route; what is below it is in TestRoutesOutsideTheAPI
			}
			all := exchangeRaw(t, b, method+" "+path+" HTTP/1.1\r\nHost: api.test\r\nX-API-Key: "+keyA+"\r\n\r\n")
			switch {
			case len(all) > 0 && all[0].status == 400 && strings.HasPrefix(all[0].header.Get("Content-Type"), "text/plain"):
				// No URL at all to net/http, which closes.
			case len(all) != 2 || all[0].status != 404:
				t.Errorf("%s %.80s: %+v", method, path, all)
			default:
				p := all[0].wantProblem(t, 404, crawl.CodeNotFound)
				bodies[strings.ReplaceAll(all[0].body, p.RequestID, "")] = path
			}
		}
	}
	if len(bodies) != 1 {
		t.Errorf("answers differ: %q", bodies)
	}
	b.mu.Lock()
	asked, left := slices.Clone(b.asked), len(b.jobs)
	b.mu.Unlock()
	for _, ref := range asked {
		if ref.Tenant != "a" || ref.ID == own || !crawl.ValidJobID(ref.ID) {
			t.Errorf("the store was asked for %q", ref)
		}
	}
	if left != 2 {
		t.Errorf("%d of two jobs are left", left)
	}
	for _, path := range []string{
		"/v1%2Fjobs", "/v1/jobs%2F" + own, "//v1/jobs", "/v1//jobs", "/v1/./jobs", "/v1/x/../jobs", "/V1/jobs", "/v1/jobs/", "/v1/jobs%00",
		"/v1/jobs%20", "/%2e%2e/v1/jobs", "/v1\\jobs", "/v1/jobs;x", "/docs/..%2fv1/jobs", "/docs/%2e%2e/%2e%2e/etc/passwd", "/docs/..%2f..%2fetc%2fpasswd",
	} {
		all := exchangeRaw(t, b, "GET "+path+" HTTP/1.1\r\nHost: api.test\r\nX-API-Key: "+keyA+"\r\n\r\n")
		if len(all) != 2 || all[0].status != 404 {
			t.Errorf("%s: %+v", path, all)
		}
	}
	wantCleanLog(t, b)
}

// SEC-10: a cursor is a position and nothing else, whatever stands in it.
func TestHostileCursorsSEC10(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref := b.add("a", crawl.Completed)
	for _, list := range []string{"/v1/jobs", "/v1/jobs/" + ref.ID + "/records", "/v1/jobs/" + ref.ID + "/errors", "/v1/jobs/" + ref.ID + "/urls"} {
		for _, cursor := range []string{
			"../../x", "*", "%00", "%0d%0a", "{b}:x", strings.Repeat("A", 10_000), "AAAAAAAAAAAA", encodeCursor('x', 1), encodeCursor(cursorJobs, -1),
			encodeCursor(cursorRecords, -1), encodeCursor(cursorErrors, -1), encodeCursor(cursorRecords, 1) + "=", encodeCursor(cursorRecords, 1) + "%0a",
			"%e2%80%ae", "%ff", "-1", "0", "1e9", "null",
		} {
			b.call("GET", list+"?cursor="+cursor, "").wantProblem(t, 400, crawl.CodeMalformed)
		}
	}
	if len(b.listed)+len(b.asked)+len(b.queries) != 0 {
		t.Errorf("the store was asked: %v %v %v", b.listed, b.asked, b.queries)
	}
}

// SEC-07: the errors that a store or a site words are one line in the log, in both formats.
func TestHostileErrorsAreOneLogLine(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"a\r\n{\"level\":\"ERROR\",\"msg\":\"forged\"}", "\x1b[31m\x1b]0;title\a", "\u009b31m", "\u202eabc", "\u2028level=error", "\u2066x\u2069",
		"get http://me:sekret@site.test/", "\ufeff", "bad \xff utf8", "\U000e0041",
	} {
		b := newBench(t)
		b.err = fmt.Errorf("dial: %s", text)
		b.call("GET", "/v1/jobs", "").wantProblem(t, 500, crawl.CodeInternal)
		logs := b.logs.String()
		if strings.Count(logs, "\n") != 1 || !json.Valid([]byte(logs)) || strings.Contains(logs, "sekret") ||
			strings.ContainsFunc(strings.TrimSuffix(logs, "\n"), unprintable) {
			t.Errorf("logged %q", logs)
		}
		if bytes.Contains([]byte(logs), []byte("forged\"}\n")) {
			t.Errorf("forged: %q", logs)
		}
	}
}
