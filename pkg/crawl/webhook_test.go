package crawl

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func secretOf(n int) Secret {
	return Secret(SecretPrefix + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", n))))
}

// Every fault of a webhook is named, and no message repeats a password or the secret.
func TestWebhookFaults(t *testing.T) {
	t.Parallel()
	const ok = "https://r.test/hook"
	long := "https://r.test/" + strings.Repeat("x", MaxWebhookURL-len("https://r.test/"))
	for _, tt := range []struct {
		name string
		give Webhook
		want []string
	}{
		{"least", Webhook{URL: ok}, nil},
		{"all", Webhook{URL: ok, Events: EventTypes, Secret: secretOf(32)}, nil},
		{"a private address is the guard's to judge", Webhook{URL: "http://127.0.0.1:8080/"}, nil},
		{"empty", Webhook{}, []string{"webhook.url:required"}},
		{"scheme", Webhook{URL: "ftp://r.test/"}, []string{"webhook.url:scheme"}},
		{"relative", Webhook{URL: "/hook"}, []string{"webhook.url:invalid_url"}},
		{"userinfo", Webhook{URL: "https://me:hush@r.test/"}, []string{"webhook.url:userinfo"}},
		{"user", Webhook{URL: "https://me@r.test/"}, []string{"webhook.url:userinfo"}},
		{"fragment", Webhook{URL: ok + "#hush"}, []string{"webhook.url:fragment"}},
		{"empty fragment", Webhook{URL: ok + "#"}, []string{"webhook.url:fragment"}},
		{"line break", Webhook{URL: "https://r.test/a\r\nX: y"}, []string{"webhook.url:control_character"}},
		{"longest", Webhook{URL: long}, nil},
		{"too long", Webhook{URL: long + "x"}, []string{"webhook.url:max"}},
		{"too long once it is escaped", Webhook{URL: long[:MaxWebhookURL-2] + "é"}, []string{"webhook.url:max"}},
		{"half an escape", Webhook{URL: ok + "?hush=%zz"}, nil},
		{"half an escape in the path", Webhook{URL: ok + "/%zz"}, []string{"webhook.url:invalid_url"}},
		{"disguised", Webhook{URL: "http://0x7f.1/"}, nil},
		{
			"events",
			Webhook{URL: ok, Events: []EventType{EventFailed, "job.ended", EventFailed, ""}},
			[]string{"webhook.events[1]:enum", "webhook.events[2]:duplicate", "webhook.events[3]:enum"},
		},
		{"many events", Webhook{URL: ok, Events: make([]EventType, 6)}, []string{"webhook.events:max"}},
		{"secret without its prefix", Webhook{URL: ok, Secret: secretOf(32)[6:]}, []string{"webhook.secret:pattern"}},
		{"shortest secret", Webhook{URL: ok, Secret: secretOf(MinSecretBytes)}, nil},
		{"longest secret", Webhook{URL: ok, Secret: secretOf(MaxSecretBytes)}, nil},
		{"short secret", Webhook{URL: ok, Secret: secretOf(MinSecretBytes - 1)}, []string{"webhook.secret:pattern"}},
		{"long secret", Webhook{URL: ok, Secret: secretOf(MaxSecretBytes + 1)}, []string{"webhook.secret:pattern"}},
		{"very long secret", Webhook{URL: ok, Secret: secretOf(1 << 20)}, []string{"webhook.secret:pattern"}},
		{"secret in two lines", Webhook{URL: ok, Secret: secretOf(24)[:20] + "\n" + secretOf(24)[20:]}, []string{"webhook.secret:pattern"}},
		{"secret without padding", Webhook{URL: ok, Secret: secretOf(25)[:40]}, []string{"webhook.secret:pattern"}},
		{"secret for URLs", Webhook{URL: ok, Secret: "whsec_" + Secret(strings.Repeat("-_", 16))}, []string{"webhook.secret:pattern"}},
		{"secret as it is shown", Webhook{URL: ok, Secret: "***"}, []string{"webhook.secret:masked"}},
		{"all at once", Webhook{URL: "x", Events: []EventType{"x"}, Secret: "x"}, []string{
			"webhook.url:invalid_url", "webhook.events[0]:enum", "webhook.secret:pattern",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := Spec{URLs: []string{"https://site.test/"}, Webhook: &tt.give}
			var got []string
			for _, f := range s.Validate(DefaultLimits()) {
				got = append(got, f.Field+":"+f.Rule)
				if strings.Contains(f.Message, "hush") || len(f.Message) > 300 || len(tt.give.Secret) > 8 &&
					strings.Contains(f.Message, string(tt.give.Secret)) {
					t.Errorf("%s says %q", f.Field, f.Message)
				}
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// A plan has the webhook as it is carried out; sources do not bind it.
func TestWebhookInThePlan(t *testing.T) {
	t.Parallel()
	src, err := ParseSources("https://site.test/")
	if err != nil {
		t.Fatal(err)
	}
	s := Spec{URLs: []string{"https://site.test/"}, Webhook: &Webhook{URL: "HTTPS://R.test:443/a/../b", Secret: secretOf(24)}}
	p, _, err := s.Plan(DefaultLimits(), src)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&Webhook{URL: "https://r.test/b", Events: EndEvents, Secret: secretOf(24)}, p.Webhook); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	other := s
	other.Webhook = &Webhook{URL: s.Webhook.URL, Secret: secretOf(25)}
	if s.Digest() == other.Digest() {
		t.Error("the secret makes no other input")
	}
	text := fmt.Sprintf("%v %+v %#v %s %q", s.Webhook, *s.Webhook, *s.Webhook, s.Webhook.Secret, s.Webhook.Masked())
	if strings.Contains(text, "a2tr") || !strings.Contains(text, "***") {
		t.Errorf("formatted: %s", text)
	}
}

// Whatever is accepted is one URL for this package and for net/url, by which it is posted to,
// and its plan is accepted as well and stays as it is.
func FuzzWebhook(f *testing.F) {
	for _, s := range []string{"https://r.test/hook?a=b", "http://[::1]:80/", "http://a@b/", "http://x/%zz", "HTTP:\\\\x\\y", "http://ß.test/ä|"} {
		f.Add(s, "job.failed", string(secretOf(24)))
	}
	f.Fuzz(func(t *testing.T, u, event, secret string) {
		w := Webhook{URL: u, Events: []EventType{EventType(event)}, Secret: Secret(secret)}
		s := Spec{URLs: []string{"https://site.test/"}, Webhook: &w}
		p, _, err := s.Plan(DefaultLimits(), mustSources(t, "*"))
		if err != nil {
			return
		}
		ours, err := ParseURL(p.Webhook.URL)
		theirs, err2 := url.Parse(p.Webhook.URL)
		if err != nil || err2 != nil || ours.String() != p.Webhook.URL || theirs.Host != ours.Host() || theirs.User != nil ||
			theirs.Fragment != "" || len(p.Webhook.URL) > MaxWebhookURL {
			t.Fatalf("%q: %v, %v, %v", p.Webhook.URL, err, err2, theirs)
		}
		again := Spec{URLs: s.URLs, Webhook: p.Webhook}
		if q, _, err := again.Plan(DefaultLimits(), mustSources(t, "*")); err != nil || !cmp.Equal(q.Webhook, p.Webhook) {
			t.Fatalf("%+v became %+v: %v", p.Webhook, q.Webhook, err)
		}
		if _, err := json.Marshal(p.Webhook); err != nil {
			t.Fatal(err)
		}
	})
}
