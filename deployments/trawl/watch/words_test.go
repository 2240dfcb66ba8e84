package watch

import (
	"math"
	"testing"
	"time"

	"example.com/trawl/pkg/client"
)

func TestNumbersForPeople(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, c := range []struct{ got, want string }{
		{longDuration(-time.Second), "0 ms"},
		{longDuration(340 * time.Millisecond), "340 ms"},
		{longDuration(999*time.Millisecond + 600*time.Microsecond), "1.0 s"},
		{longDuration(12340 * time.Millisecond), "12.3 s"},
		{longDuration(59960 * time.Millisecond), "1 min"},
		{longDuration(125 * time.Second), "2 min 5 s"},
		{longDuration(time.Hour - time.Millisecond), "1 h"},
		{longDuration(3*time.Hour + 20*time.Minute), "3 h 20 min"},
		{longDuration(day - time.Second), "1 d"},
		{longDuration(3*day + 4*time.Hour + time.Minute), "3 d 4 h"},
		{longDuration(math.MaxInt64), "106751 d 23 h"}, // rounded by a duration that knows its bound
		{shortDuration(500 * time.Millisecond), "500ms"},
		{shortDuration(time.Minute), "1m"},
		{shortDuration(90 * time.Minute), "1h30m"},
		{shortDuration(time.Hour), "1h"},
		{shortDuration(10 * time.Second), "10s"},
		{clock(-1), "0:00"},
		{clock(71 * time.Second), "1:11"},
		{clock(time.Hour + 2*time.Minute + 3*time.Second), "1:02:03"},
		{byteSize(-1), "0 B"},
		{byteSize(999), "999 B"},
		{byteSize(1234), "1.2 kB"},
		{byteSize(9950), "10 kB"},
		{byteSize(310_000), "310 kB"},
		{byteSize(999_600), "1.0 MB"},
		{byteSize(math.MaxInt64), "9.2 EB"},
		{rateText(0), "0"},
		{rateText(math.NaN()), "0"},
		{rateText(0.01), "<0.1"},
		{rateText(3.94), "3.9"},
		{rateText(9.96), "10"},
		{rateText(1234.4), "1234"},
		{rateText(12345), "12k"},
		{leftText(59 * time.Second), "0:59"},
		{leftText(80 * time.Minute), "1 h 20 min"},
	} {
		if c.got != c.want {
			t.Errorf("%q, wanted %q", c.got, c.want)
		}
	}
}

func TestJobIsCalledByItsHost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, want string
		spec       *client.Spec
	}{
		{"no spec", "j1", nil},
		{"empty", "j1", &client.Spec{}},
		{"seed", "docs.example:8000", &client.Spec{SeedURL: "http://docs.example:8000/3/"}},
		{"seeds of one host", "a.example", &client.Spec{Seeds: []string{"https://a.example/1", "https://a.example/2"}}},
		{"urls", "a.example +1", &client.Spec{URLs: []string{"https://a.example", "https://b.example"}}},
		{"no URL", "what ever", &client.Spec{SeedURL: "what\never"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := jobName(&client.Job{ID: "j1", Spec: c.spec}); got != c.want {
				t.Errorf("%q, wanted %q", got, c.want)
			}
		})
	}
}
