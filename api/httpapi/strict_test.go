package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"example.com/trawl/pkg/crawl"
)

// nested has every kind of field that the decoder knows, at several levels.
type nested struct {
	URL     string            `json:"url"`
	Count   *int64            `json:"count"`
	Small   int8              `json:"small"`
	Ratio   float64           `json:"ratio"`
	On      bool              `json:"on"`
	List    []string          `json:"list"`
	Wait    *crawl.Duration   `json:"wait"`
	Webhook *webhookShape     `json:"webhook"`
	Hooks   []webhookShape    `json:"hooks"`
	Headers map[string]string `json:"headers"`
	Raw     any               `json:"raw"`
}

type webhookShape struct {
	URL  string `json:"url"`
	Kind string `json:"kind"`
}

func deep(n int) string { return strings.Repeat(`{"raw":`, n) + "1" + strings.Repeat("}", n) }

func TestDecodeStrict(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, in string
		code     crawl.Code
		want     []string // field:rule of each fault
	}{
		{"empty object", `{}`, "", nil},
		{"space around", " \t\r\n{ \"url\" : \"a\" , \"list\" : [ \"b\" , \"c\" ] } \n", "", nil},
		{"all kinds", `{"url":"a","count":-1,"small":127,"ratio":1e3,"on":true,"list":[],"wait":"1h","webhook":{"url":"x"},` +
			`"hooks":[{"kind":"k"},{}],"headers":{"A":"b"},"raw":{"x":[1,{"y":null}]}}`, "", nil},
		{"null is not given", `{"url":null,"count":null,"list":null,"wait":null,"webhook":null,"headers":null,"raw":null}`, "", nil},
		{"escaped name", `{"\u0075rl":"a"}`, "", nil},
		{"deep enough", deep(32), "", nil},
		{"surrogate pair", `{"url":"\ud83d\ude00 \\ud83d"}`, "", nil},

		{"SEC-09 nothing", "", crawl.CodeMalformed, nil},
		{"SEC-09 space", strings.Repeat(" ", 100), crawl.CodeMalformed, nil},
		{"SEC-09 byte order mark", "\ufeff{}", crawl.CodeMalformed, nil},
		{"SEC-09 not UTF-8", "{\"url\":\"\xe9\"}", crawl.CodeMalformed, nil},
		{"SEC-09 lone surrogate", `{"url":"\ud83d"}`, crawl.CodeMalformed, nil},
		{"SEC-09 surrogates reversed", `{"url":"\ude00\ud83d"}`, crawl.CodeMalformed, nil},
		{"SEC-09 surrogate, then other", `{"url":"\ud83d\u0041"}`, crawl.CodeMalformed, nil},
		{"SEC-09 list", `[{"url":"a"}]`, crawl.CodeMalformed, nil},
		{"SEC-09 null", `null`, crawl.CodeMalformed, nil},
		{"SEC-09 cut", `{"url":"a`, crawl.CodeMalformed, nil},
		{"SEC-09 cut in escape", `{"url":"a\`, crawl.CodeMalformed, nil},
		{"SEC-09 cut object", `{"url":"a"`, crawl.CodeMalformed, nil},
		{"SEC-09 comma", `{"url":"a",}`, crawl.CodeMalformed, nil},
		{"SEC-09 comment", `{"url":"a"/**/}`, crawl.CodeMalformed, nil},
		{"SEC-09 NaN", `{"ratio":NaN}`, crawl.CodeMalformed, nil},
		{"SEC-09 control in string", "{\"url\":\"a\nb\"}", crawl.CodeMalformed, nil},
		{"SEC-09 brackets crossed", `{"list":["a"}]`, crawl.CodeMalformed, nil},
		{"SEC-09 too deep", deep(33), crawl.CodeMalformed, nil},
		{"SEC-09 20,000 levels", `{"a":` + strings.Repeat(`{"a":`, 20000), crawl.CodeMalformed, nil},
		{"SEC-09 9,999 lists", strings.Repeat("[", 9999), crawl.CodeMalformed, nil},
		{"SEC-09 two objects", `{"url":"a"}{"url":"b"}`, crawl.CodeInvalid, []string{"body:trailing_data"}},
		{"SEC-09 trailing text", `{"url":"a"} trailing`, crawl.CodeInvalid, []string{"body:trailing_data"}},
		{"SEC-09 trailing no-break space", "{\"url\":\"a\"}\u00a0", crawl.CodeInvalid, []string{"body:trailing_data"}},
		{
			"SEC-09 huge exponent", `{"count":1e400,"ratio":1e400,"small":128}`, crawl.CodeInvalid,
			[]string{"count:type", "ratio:range", "small:range"},
		},

		{"JOB-04 letter case", `{"url":"a","URL":"b"}`, crawl.CodeInvalid, []string{"URL:duplicate"}},
		{"JOB-04 twice", `{"url":"a","url":"b"}`, crawl.CodeInvalid, []string{"url:duplicate"}},
		{"JOB-04 twice, once escaped", `{"url":"a","\u0075rl":"b"}`, crawl.CodeInvalid, []string{"url:duplicate"}},
		{"JOB-04 three times", `{"url":"a","url":"b","uRL":"c"}`, crawl.CodeInvalid, []string{"url:duplicate", "uRL:duplicate"}},
		{"JOB-04 wrong case alone", `{"uRL":"a"}`, crawl.CodeInvalid, []string{"uRL:unknown"}},
		{"JOB-04 Unicode folding", `{"li\u017ft":["a"],"\u212a":1}`, crawl.CodeInvalid, []string{"li\u017ft:unknown", "\u212a:unknown"}},
		{"JOB-04 nested", `{"webhook":{"url":"x","URL":"y"}}`, crawl.CodeInvalid, []string{"webhook.URL:duplicate"}},
		{"JOB-04 in a list", `{"hooks":[{},{"kind":"x","Kind":"y"}]}`, crawl.CodeInvalid, []string{"hooks[1].Kind:duplicate"}},
		{
			"JOB-04 free names", `{"headers":{"A":"x","a":"y"},"raw":{"k":[{"v":1,"v":2}]}}`, crawl.CodeInvalid,
			[]string{"headers.a:duplicate", "raw.k[0].v:duplicate"},
		},
		{"JOB-04 unknown", `{"urll":"a","webhook":{"uri":1}}`, crawl.CodeInvalid, []string{"urll:unknown", "webhook.uri:unknown"}},
		{"JOB-04 inside an unknown", `{"zz":{"a":1,"A":2}}`, crawl.CodeInvalid, []string{"zz:unknown", "zz.A:duplicate"}},

		{"JOB-03 whole numbers", `{"count":2.0}`, crawl.CodeInvalid, []string{"count:type"}},
		{
			"types, all at once", `{"url":1,"count":"1","small":[],"ratio":"1","on":0,"list":"a","webhook":[],"hooks":{},"headers":"x"}`,
			crawl.CodeInvalid,
			[]string{
				"url:type", "count:type", "small:type", "ratio:type", "on:type", "list:type", "webhook:type", "hooks:type", "headers:type",
			},
		},
		{
			"types in lists", `{"list":["a",null,1,["b"],{"c":1}],"hooks":[null,"x"],"headers":{"a":1}}`, crawl.CodeInvalid,
			[]string{"list[1]:type", "list[2]:type", "list[3]:type", "list[4]:type", "hooks[0]:type", "hooks[1]:type", "headers.a:type"},
		},
		{"duration as number", `{"wait":5}`, crawl.CodeInvalid, []string{"wait:type"}},
		{"duration as list", `{"wait":[1]}`, crawl.CodeInvalid, []string{"wait:type"}},
		{"duration misspelt", `{"wait":"5 minutes"}`, crawl.CodeInvalid, []string{"wait:format"}},
		{
			"everything at once", `{"urll":1,"url":2,"URL":3} x`, crawl.CodeInvalid,
			[]string{"urll:unknown", "url:type", "URL:duplicate", "body:trailing_data"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got nested
			err := decodeStrict([]byte(tt.in), &got)
			if code := crawl.CodeOf(err); code != tt.code {
				t.Fatalf("%v, want code %q", err, tt.code)
			}
			if err == nil {
				var want nested
				if err := json.Unmarshal([]byte(tt.in), &want); err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("-want +got:\n%s", d)
				}
				return
			}
			var f *crawl.Fault
			errors.As(err, &f)
			if f.Message == "" {
				t.Error("no message")
			}
			var rules []string
			for _, ff := range f.Fields {
				rules = append(rules, ff.Field+":"+ff.Rule)
				if ff.Message == "" {
					t.Errorf("%s has no message", ff.Field)
				}
			}
			if d := cmp.Diff(tt.want, rules); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// SEC-09: nonsense of any size gets an answer of bounded size, which says that there
// is more, and is not walked to its end. Not parallel: it looks at what the whole
// process allocates.
func TestFaultsAreBoundedSEC09(t *testing.T) {
	names := func(n, length int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"%s%d":1,`, strings.Repeat("k", length), i)
		}
		return b.String() + `"last":1`
	}
	for _, tt := range []struct {
		name, in    string
		faults      int
		field, rule string // of the last
	}{
		{"as many as are told", "{" + names(maxFaults-1, 1) + "}", maxFaults, "last", ruleUnknown},
		{"one more", "{" + names(maxFaults, 1) + "}", maxFaults + 1, wholeBody, crawl.RuleMoreFaults},
		{"150,000 unknown names", "{" + names(150_000, 1) + "}", maxFaults + 1, wholeBody, crawl.RuleMoreFaults},
		{"long names", "{" + names(2000, 1000) + "}", maxFaults + 1, wholeBody, crawl.RuleMoreFaults},
		{"in a list", `{"hooks":[` + strings.Repeat(`"x",`, 400_000) + `1]}`, maxFaults + 1, wholeBody, crawl.RuleMoreFaults},
		{"lists in a list", `{"list":[` + strings.Repeat(`[[1]],`, 300_000) + `1]}`, maxFaults + 1, wholeBody, crawl.RuleMoreFaults},
		{"in a known field", `{"raw":{` + names(150_000, 1) + "}}", 1, "raw", ruleMax},
		{"in a map", `{"headers":{` + strings.ReplaceAll(names(150_000, 1), "1,", `"v",`) + "}}", 1, "headers", ruleMax},
	} {
		var f *crawl.Fault
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := decodeStrict([]byte(tt.in), &nested{})
		runtime.ReadMemStats(&after)
		if !errors.As(err, &f) || len(f.Fields) != tt.faults {
			t.Errorf("%s: got %d faults, want %d", tt.name, len(f.Fields), tt.faults)
			continue
		}
		if last := f.Fields[len(f.Fields)-1]; last.Field != tt.field || last.Rule != tt.rule {
			t.Errorf("%s: the last is %+v", tt.name, last)
		}
		for _, fault := range f.Fields {
			if n := len(fault.Field); n > maxName+len("…") {
				t.Errorf("%s: a name of %d bytes is echoed", tt.name, n)
			}
		}
		// Half a megabyte for the faults; the body itself is copied to bytes above.
		if spent := int(after.TotalAlloc - before.TotalAlloc); spent > 2*len(tt.in)+512<<10 {
			t.Errorf("%s: %d bytes were spent on a body of %d", tt.name, spent, len(tt.in))
		}
	}
}

func TestMisspeltNameIsToldTheRightOne(t *testing.T) {
	t.Parallel()
	var f *crawl.Fault
	if !errors.As(decodeStrict([]byte(`{"List":[]}`), &nested{}), &f) || !strings.Contains(f.Fields[0].Message, "Use list.") {
		t.Errorf("got %v", f)
	}
}

// What is accepted has one meaning: the plain decoder, with unknown fields
// forbidden, reads the same, and writing it and reading it again changes nothing.
func checkAccepted(t interface {
	Helper()
	Fatalf(string, ...any)
}, in []byte,
) {
	t.Helper()
	var got nested
	err := decodeStrict(in, &got)
	if err != nil {
		if code := crawl.CodeOf(err); code != crawl.CodeMalformed && code != crawl.CodeInvalid {
			t.Fatalf("%q: code %q", in, code)
		}
		return
	}
	var plain nested
	d := json.NewDecoder(strings.NewReader(string(in)))
	d.DisallowUnknownFields()
	if err := d.Decode(&plain); err != nil {
		t.Fatalf("%q is accepted, but not by encoding/json: %v", in, err)
	}
	if !reflect.DeepEqual(plain, got) {
		t.Fatalf("%q is %+v, to encoding/json %+v", in, got, plain)
	}
}

func FuzzDecodeStrict(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"url":"a","URL":"b"}`, `{"url":"\ud83d\ude00"}`, `{"list":["a",null]}{`, `{"raw":{"a":[1,2e9,true,{"b":null}]}}`,
		`{"wait":"1h","hooks":[{"kind":"x"}],"headers":{"a":"b"}}`, "{\"url\":\"\\u00e9\\\\\\\"\"}", `{"\u0075rl":"x"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) { checkAccepted(t, in) })
}

// Valid documents, spelled in all ways, are accepted, and their names are
// compared as encoding/json does it.
func TestDecodeStrictProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := nested{
			URL: rapid.String().Draw(t, "url"), Small: rapid.Int8().Draw(t, "small"), On: rapid.Bool().Draw(t, "on"),
			List: rapid.SliceOf(rapid.String()).Draw(t, "list"), Ratio: rapid.Float64().Draw(t, "ratio"),
		}
		in, err := json.MarshalIndent(n, rapid.SampledFrom([]string{"", "\t"}).Draw(t, "prefix"), " ")
		if err != nil {
			t.Skip() // a float that JSON has not
		}
		var got nested
		if err := decodeStrict(in, &got); err != nil {
			t.Fatalf("%s: %v", in, err)
		}
		checkAccepted(t, in)
		a, b := rapid.String().Draw(t, "a"), rapid.String().Draw(t, "b")
		if (fold(a) == fold(b)) != strings.EqualFold(a, b) {
			t.Fatalf("fold(%q) = %q, fold(%q) = %q", a, fold(a), b, fold(b))
		}
		if up := strings.ToUpper(a); strings.EqualFold(a, up) && fold(a) != fold(up) {
			t.Fatalf("fold(%q) = %q, fold(%q) = %q", a, fold(a), up, fold(up))
		}
	})
}

func TestCursor(t *testing.T) {
	t.Parallel()
	kinds := []byte{cursorJobs, cursorRecords, cursorErrors}
	rapid.Check(t, func(t *rapid.T) {
		kind, position := rapid.SampledFrom(kinds).Draw(t, "kind"), rapid.Int64Min(0).Draw(t, "position")
		s := encodeCursor(kind, position)
		for _, k := range kinds {
			if got, ok := decodeCursor(k, s); ok != (k == kind) || ok && got != position {
				t.Fatalf("decodeCursor(%c, encodeCursor(%c, %d)) = %d, %v", k, kind, position, got, ok)
			}
		}
	})
	for _, bad := range []string{"", "0", "../../etc", "*", "AAAAAAAAAAAA", "cgAAAAAAAAA=", encodeCursor(cursorRecords, -1)} {
		if _, ok := decodeCursor(cursorRecords, bad); ok {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func FuzzDecodeCursor(f *testing.F) {
	f.Add("cgAAAAAAAAAB")
	f.Add("cgAAAA\nAAAAB")
	f.Fuzz(func(t *testing.T, s string) {
		for _, kind := range []byte{cursorJobs, cursorRecords, cursorErrors} {
			if n, ok := decodeCursor(kind, s); ok && encodeCursor(kind, n) != s {
				t.Errorf("%q and %q are one position", s, encodeCursor(kind, n))
			}
		}
	})
}

func TestCredential(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name         string
		bearer, xkey []string
		want         string
	}{
		{"none", nil, nil, ""},
		{"bearer", []string{"Bearer k"}, nil, "k"},
		{"letter case of the scheme", []string{"bearer k"}, nil, "k"},
		{"header", nil, []string{"k"}, "k"},
		{"both, equal", []string{"Bearer k"}, []string{"k"}, "k"},
		{"both, different", []string{"Bearer k"}, []string{"l"}, ""},
		{"twice, different", nil, []string{"k", "l"}, ""},
		{"other scheme", []string{"Basic k"}, nil, ""},
		{"other scheme beside a key", []string{"Basic k"}, []string{"k"}, ""},
	} {
		h := map[string][]string{"Authorization": tt.bearer, "X-Api-Key": tt.xkey}
		got, err := credential(h)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s: %q, %v, want %q", tt.name, got, err, tt.want)
		}
	}
}

func TestKeyring(t *testing.T) {
	t.Parallel()
	if _, err := newKeyring(map[string][]string{"a": {"k"}, "b": {"k"}}); err == nil {
		t.Error("two tenants share a key")
	}
	if _, err := newKeyring(map[string][]string{"A": {"k"}}); err == nil {
		t.Error("A names a tenant")
	}
	k, err := newKeyring(map[string][]string{"a": {"k1", "k2"}, "b": {"k3"}})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"k1": "a", "k2": "a", "k3": "b", "k4": "", "": ""} {
		if got := k.tenant(key); got != want {
			t.Errorf("%q is of tenant %q, want %q", key, got, want)
		}
	}
	if slices.Contains(k.tenants, "k1") {
		t.Error("a key is kept")
	}
}
