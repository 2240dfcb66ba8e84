package crawl

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
)

// Whatever JSON makes of a spec, it is judged without a panic, each fault with its field,
// its rule and a sentence. A spec that is accepted has rules that compile, and a plan that
// is the same when it was stored.
func FuzzSpec(f *testing.F) {
	for _, s := range []string{
		`{"urls":["http://a.test/"]}`, `{"seed_url":"http://a.test/","scope":"domain","max_pages":0,"max_depth":-1}`,
		`{"seeds":["//x","http://a.test/"],"include":["re:((a{100}){100}){100}","re:\\pL{1000}","/a/*","#"],"exclude":["https://*.a.test/**"]}`,
		`{"urls":["http://a.test/"],"headers":{"Sec-A":"b","A":"***","a":"\r\n"},"user_agent":"\u0000"}`,
		`{"urls":["http://u:p@a.test/","http://[::1%25a]/","http://0x7f.1/","http://a.test/\n"],"tags":["","\u202e"]}`,
		`{"seed_url":"http://a.test/?b=1&utm_x=2","drop_params":["*","tracking","\u0000"],"sort_params":true,"time_limit":"1ns","delay":"-1s"}`,
	} {
		f.Add(s)
	}
	sources := mustSources(f, "*")
	f.Fuzz(func(t *testing.T, text string) {
		var s Spec
		if json.Unmarshal([]byte(text), &s) != nil {
			return
		}
		plan, inputs, err := s.Plan(DefaultLimits(), sources)
		var fault *Fault
		if errors.As(err, &fault) {
			for _, ff := range fault.Fields {
				if ff.Field == "" || ff.Rule == "" || ff.Message == "" {
					t.Fatalf("%q: %+v is not whole", text, ff)
				}
			}
			if len(fault.Fields) == 0 {
				t.Fatalf("%q is refused without a reason", text)
			}
			return
		}
		if err != nil || len(inputs) == 0 || len(s.Validate(DefaultLimits())) > 0 {
			t.Fatalf("%q: %v, %d inputs", text, err, len(inputs))
		}
		if _, err := plan.Rules(); err != nil {
			t.Fatalf("%q is accepted; its rules: %v", text, err)
		}
		stored, err := json.Marshal(plan)
		if err != nil {
			t.Fatal(err)
		}
		var again Plan
		if err := json.Unmarshal(stored, &again); err != nil {
			t.Fatal(err)
		}
		// An empty list is none; JSON of what was read tells no difference either.
		if second, err := json.Marshal(again); err != nil || string(second) != string(stored) {
			t.Fatalf("%q is stored as %s, and read as %s, %v", text, stored, second, err)
		}
		if !reflect.DeepEqual(again.Headers.Masked(), plan.Headers.Masked()) {
			t.Fatalf("%q: the headers are %v, %v", text, again.Headers, plan.Headers)
		}
	})
}
