package main

import (
	"encoding/base64"
	"strings"
	"testing"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// The jobs have what they say in each state, the last records are those of the end, and a status costs Redis the same
// at both sizes.
func checkReads(t *testing.T, r *rig) {
	t.Helper()
	found, err := r.reads(t.Context(), 0.2)
	if err != nil {
		t.Fatal(err)
	}
	rows := found.Tables[0].Rows
	if len(rows) != 9 || rows[1].Name != "status, running, 1,500 pages" || rows[8].Name != "the last 100 records of 1,500" {
		t.Fatalf("%+v", rows)
	}
	for _, row := range rows {
		for key, c := range row.Cells {
			if c.Median <= 0 && !strings.Contains(key, "cpu") { // which is told to 10 ms
				t.Errorf("%s: %s is %v", row.Name, key, c)
			}
		}
	}
	// Ten records have one size, wherever they are: their numbers have more digits.
	if small, end := rows[4].Cells["bytes"].Median, rows[6].Cells["bytes"].Median; end < small || end > small*1.05 {
		t.Errorf("10 records are %v bytes, the last ten of many %v", small, end)
	}
	if b := found.Bars[1]; b.Value != 1 {
		t.Errorf("%+v", b)
	}
}

// A job that has not what was committed is none to measure, and a cursor that is not understood none to go by.
func TestFiller(t *testing.T) {
	t.Parallel()
	crawltest.Real(t) // or skips the test
	f, err := (&rig{dir: t.TempDir()}).newFleet(t.Context(), fleetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.stop()
	l, err := f.fill(t.Context(), "some", 100)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.commit(t.Context(), 40); err != nil {
		t.Fatal(err)
	}
	if l.verify(t.Context(), crawl.Running) != nil || l.verify(t.Context(), crawl.Completed) == nil {
		t.Error("the job of which 40 pages are committed is not running")
	}
	l.done.Add(1)
	if l.verify(t.Context(), crawl.Running) == nil {
		t.Error("one more was committed than the job knows of")
	}
	l.done.Add(-1)
	if err := l.commit(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	if l.verify(t.Context(), crawl.Completed) != nil || l.verify(t.Context(), crawl.Running) == nil {
		t.Error("the job with all its pages has not ended")
	}
	if err := l.commit(t.Context(), 101); err == nil || !strings.Contains(err.Error(), "no page of the job is due") {
		t.Errorf("a page that nobody links to: %v", err)
	}
}

func TestCursorBehind(t *testing.T) {
	t.Parallel()
	encode := base64.RawURLEncoding.EncodeToString
	for _, tt := range []struct {
		given, want string
	}{
		{encode([]byte("r\x00\x00\x00\x00\x00\x00\x00\x0a")), encode([]byte("r\x00\x00\x00\x00\x00\x0f\x42\x36"))},
		{encode([]byte("r\x00\x00\x00\x00\x00\x00\x00\x0b")), ""},
		{encode([]byte("r\x00\x00\x00\x0a")), ""},
		{"10", ""},
		{"", ""},
	} {
		got, err := cursorBehind(tt.given, 10, 999_990)
		if got != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("%q: %q, %v; want %q", tt.given, got, err, tt.want)
		}
	}
}

func TestReadFindings(t *testing.T) {
	t.Parallel()
	pair := func(p50 ...float64) []*read {
		reads := []*read{{name: "small"}, {name: "big"}}
		for i, v := range p50 {
			m := measured{called: called{Count: 1000, Seconds: 1, P50: v}, redis: gauge{commands: 9012}}
			reads[i%2].rounds = append(reads[i%2].rounds, m)
		}
		return reads
	}
	running, ended := pair(100, 110, 100, 300, 200, 210), pair(100, 120, 100, 120, 100, 90)
	found := readFindings(running, ended, nil, 1_000_000)
	// Of the running job the big one takes 1.1, 3 and 1.05 times as long; of the ended 1.2, 1.2 and 0.9.
	if b := found.Bars[0]; b.Value != 1.2 || !b.met() || !strings.Contains(b.Figure, "1,000,000 pages to 10") {
		t.Errorf("%+v", b)
	}
	if b := found.Bars[1]; b.Value != 1 || !b.met() {
		t.Errorf("9 commands of both, and some besides: %+v", b)
	}
	ended[1].rounds[0].redis.commands, ended[1].rounds[1].redis.commands, ended[1].rounds[2].redis.commands = 10013, 10010, 10020
	if b := readFindings(running, ended, nil, 1_000_000).Bars[1]; b.met() {
		t.Errorf("10 commands of the big, 9 of the small: %+v", b)
	}
	if c := ended[1].row().Cells["redis_commands"]; c.Median != 10 {
		t.Errorf("commands: %+v", c)
	}
}
