package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
)

// What the decoder accepts as a submission means the same to the plain decoder, stays the
// same when it is written and read again, and is judged without a panic, each fault with
// its field, rule and message. What it refuses, it says why.
func FuzzSubmission(f *testing.F) {
	for _, s := range []string{
		oneURL, `{"seed_url":"http://a.test/","max_pages":1,"max_depth":0,"include":["/a/**","re:a+"],"exclude":["re:((a{100}){100}){100}"]}`,
		`{"seeds":["http://a.test/","http://a.test:80/#x"],"scope":"prefix","time_limit":"1h","delay":"500ms","retention":"72h"}`,
		`{"urls":["http://u:p@a.test/"],"headers":{"Host":"x","A":"b\r\nC: d"},"user_agent":"Bot\n","tags":["\u2028",""]}`,
		`{"\u0075rls":[null],"URLS":[],"ſeed_url":1}`, `{"urls":["http://a.test/"],"drop_params":["utm_*","tracking"],"sort_params":true,"sitemap":"only"}`,
		`{"fields":{"a":{"selector":"h1:::["}},"webhook":{"url":"x","URL":"y"},"formats":["text"]}`, extracting,
		`{"urls":["http://a.test/"],"collection":"jobs","fields":{"z":{"selector":"a","group":"g","regex":"(?P<g>.)"},"a":{"expr":"z"}}}`,
		`{"urls":["http://a.test/"],"fields":{"a":{"selector":null,"group":null,"default":null,"trim":null}},"items":null,"collection":{"name":null}}`,
		`{"urls":["http://a.test/"],"fields":{"a":{"x":1},"A":null},"items":{"y":{},"fields":[]},"collection":[{}]}`, `{"max_pages":1e999,"concurrency":-0}`,
		`{"urls":["http://a.test/"]}{}`, "\ufeff{}", `{"":1,"headers":{"":"x"}}`, `{"urls":["http://a.test/\ud800"]}`, strings.Repeat(`{"a":`, 40),
	} {
		f.Add([]byte(s))
	}
	sources, err := crawl.ParseSources("*")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var in submission
		if err := decodeStrict(body, &in); err != nil {
			wantFault(t, err)
			return
		}
		var plain submission
		d := json.NewDecoder(strings.NewReader(string(body)))
		d.DisallowUnknownFields()
		// A null is not given; what decodes itself may take one for a value.
		if err := d.Decode(&plain); err != nil || !reflect.DeepEqual(plain, in) && !bytes.Contains(body, []byte("null")) {
			t.Fatalf("%q is %+v, to encoding/json %+v, %v", body, in, plain, err)
		}
		written, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var again submission
		if err := decodeStrict(written, &again); err != nil {
			t.Fatalf("%q is written as %s, which is refused: %v", body, written, err)
		}
		a, b := crawl.Spec(in), crawl.Spec(again)
		if a.Digest() != b.Digest() {
			t.Fatalf("%q is another input when it is read again: %s", body, written)
		}
		acct := &account{limits: crawl.DefaultLimits()}
		plan, inputs, err := acct.plan(&in, sources, nil)
		if err != nil {
			wantFault(t, err)
			return
		}
		if _, err := plan.Rules(); err != nil || len(inputs) == 0 {
			t.Fatalf("%q is accepted with %d inputs; its rules: %v", body, len(inputs), err)
		}
	})
}

// wantFault checks that an error tells a caller what is wrong.
func wantFault(t *testing.T, err error) {
	t.Helper()
	var f *crawl.Fault
	if !errors.As(err, &f) || f.Message == "" || f.Code == crawl.CodeInternal || f.Code == crawl.CodeInvalid && len(f.Fields) == 0 {
		t.Fatalf("%#v is no answer", err)
	}
	for _, ff := range f.Fields {
		if ff.Field == "" || ff.Rule == "" || ff.Message == "" {
			t.Fatalf("%+v is not whole", ff)
		}
	}
}

// A place in the list of URLs has one spelling, and nothing else is one.
func FuzzDecodePlace(f *testing.F) {
	f.Add(encodePlace(store.URLPlace{Container: "refused", Offset: 1}), "skipped:robots", int64(1))
	f.Add("dQAAAA\nAAAAB", "", int64(0))
	f.Add("../../x", "{b}:x", int64(-1))
	f.Fuzz(func(t *testing.T, s, container string, offset int64) {
		if p, ok := decodePlace(s); ok && encodePlace(p) != s {
			t.Errorf("%q and %q are one place", s, encodePlace(p))
		}
		place := store.URLPlace{Container: container, Offset: offset}
		got, ok := decodePlace(encodePlace(place))
		if want := offset >= 0 && len(container) <= maxContainer; ok != want || ok && got != place {
			t.Errorf("%+v is read as %+v, %v", place, got, ok)
		}
	})
}

// JOB-05: an idempotency key that is accepted is the one that was sent, without the blanks
// around it; no two are made equal.
func FuzzIdempotencyKey(f *testing.F) {
	for _, s := range []string{"", "k", " k ", "a b", "a\tb", "\xe9", "ж", "a:b{c}", "../x", "\"k\"", strings.Repeat("k", 256), "k\x00", "\u00a0k"} {
		f.Add(s, "k")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		key, err := idempotencyKey(http.Header{"Idempotency-Key": {a}})
		if err != nil {
			if crawl.CodeOf(err) != crawl.CodeMalformed {
				t.Errorf("%q: %v", a, err)
			}
			return
		}
		if key != strings.Trim(a, " \t") || key == "" || len(key) > maxIdempotencyKey || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Errorf("%q is accepted as %q", a, key)
		}
		if !crawl.ValidJobID(crawl.NewJobID("a", key)) {
			t.Errorf("%q makes no id", key)
		}
		if other, err := idempotencyKey(http.Header{"Idempotency-Key": {b}}); err == nil && other != key &&
			crawl.NewJobID("a", other) == crawl.NewJobID("a", key) {
			t.Errorf("%q and %q are one key", a, b)
		}
		if _, err := idempotencyKey(http.Header{"Idempotency-Key": {a, a}}); err == nil {
			t.Errorf("%q is accepted twice", a)
		}
	})
}

// A query of anything is answered with faults of a bounded number, and no request id of a
// caller is taken that is more than a word.
func FuzzQuery(f *testing.F) {
	for _, s := range []string{"", "limit=1", "limit=1&limit=2", "a=%zz", "%00=%0d%0a", "cursor=../../x&state=done", ";", "=1", "a;b=1", "&&&", "\u202e=1"} {
		f.Add(s)
	}
	known := queryNames(reflect.TypeFor[listInput]())
	f.Fuzz(func(t *testing.T, raw string) {
		faults := queryFaults(raw, known)
		if len(faults) > maxFaults+1 {
			t.Errorf("%d faults", len(faults))
		}
		p := params{faults: faults}
		values, _ := url.ParseQuery(raw)
		p.limit(values.Get("limit"), listLimitDefault, listLimitMax)
		p.cursor(cursorJobs, values.Get("cursor"))
		p.state(values.Get("state"))
		p.time("created_after", values.Get("created_after"))
		if err := p.err(); err != nil {
			for _, ff := range p.faults {
				if ff.Field == "" || ff.Rule == "" || ff.Message == "" || len([]rune(ff.Field)) > maxName+1 {
					t.Errorf("%q: %+v", raw, ff)
				}
			}
		}
		id := requestID(http.Header{"X-Request-Id": {raw}})
		if id == "" || len(id) > 128 || strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != "" {
			t.Errorf("%q is taken as %q", raw, id)
		}
	})
}

// SEC-08: whatever a page calls itself, its cell is no formula and can be read back.
func FuzzCell(f *testing.F) {
	for _, s := range hostileTexts {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) { checkCell(t, s) })
}
