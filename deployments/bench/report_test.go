package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestNumber(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		v      float64
		digits int
		want   string
	}{
		{0, 0, "0"},
		{999.4, 0, "999"},
		{1000, 0, "1,000"},
		{1234567.891, 2, "1,234,567.89"},
		{-1000, 0, "-1,000"},
		{-100, 1, "-100.0"},
		{0.07, 2, "0.07"},
	} {
		if got := number(tt.v, tt.digits); got != tt.want {
			t.Errorf("%v with %d digits: %q, want %q", tt.v, tt.digits, got, tt.want)
		}
	}
}

func TestOver(t *testing.T) {
	t.Parallel()
	if got, want := over(3, 1, 2), (cell{Median: 2, Min: 1, Max: 3, Rounds: 3}); got != want {
		t.Errorf("three rounds: %+v, want %+v", got, want)
	}
	if got := over(7); got.Median != 7 || got.Min != 7 || got.Max != 7 || got.Rounds != 1 {
		t.Errorf("one round: %+v", got)
	}
	rounds := []string{"a", "bbb", "cc"}
	if got := overOf(rounds, func(s string) float64 { return float64(len(s)) }); got.Median != 2 || got.Rounds != 3 {
		t.Errorf("of each round: %+v", got)
	}
}

func TestBarIsMet(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		bar  bar
		want bool
	}{
		{bar{Bound: 3, Value: 3}, true},
		{bar{Bound: 3, Value: 2.99}, false},
		{bar{Bound: 3, Value: 9}, true},
		{bar{Bound: 220, Value: 220, AtMost: true}, true},
		{bar{Bound: 220, Value: 221, AtMost: true}, false},
		{bar{Bound: 1, AtMost: true}, true},
	} {
		if got := tt.bar.met(); got != tt.want {
			t.Errorf("%+v is met: %v", tt.bar, got)
		}
	}
}

func sample() *report {
	r := &report{
		Machine: machine{CPU: "A machine", Cores: 2, System: "linux/amd64", Go: "go1.26", Redis: "7.0.15", Commit: "abc"},
		Begun:   time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC), Seconds: 600,
	}
	r.add(part{name: "pages"}, findings{
		Bars: []bar{
			{Figure: "pages/s to colly", Bound: 3, Value: 4.25, Unit: "times", Digits: 1},
			{Figure: "CPU a page", AtMost: true, Bound: 220, Value: 230, Unit: "µs"},
		},
		Tables: []table{{
			Title: "Pages", Columns: []column{{Key: "rate", Title: "pages/s", Range: true}, {Key: "cpu", Title: "µs"}},
			Rows: []row{
				{Name: "Trawl", Cells: map[string]cell{"rate": over(5000, 6000, 5500), "cpu": over(160)}},
				{Name: "colly", Cells: map[string]cell{"rate": over(1700)}},
			},
			Notes: []string{"As measured."},
		}},
	})
	return r
}

func TestReportForPeople(t *testing.T) {
	t.Parallel()
	got := sample().text()
	head := "A machine, 2 cores, linux/amd64, go1.26, Redis 7.0.15; commit abc, 2026-11-30, 10 minutes.\n\n### Bars of DESIGN §8\n\n"
	if !strings.HasPrefix(got, head) {
		t.Errorf("it begins so:\n%s", got)
	}
	for _, line := range []string{
		"| pages/s to colly | ≥ 3.0 times | 4.2 times |        met |", "| CPU a page       |    ≤ 220 µs |    230 µs | **missed** |",
		"| Trawl | 5,500 (5,000–6,000) | 160 |", "| colly |               1,700 |   – |", "As measured.",
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("it lacks %q:\n%s", line, got)
		}
	}
	for _, line := range strings.Split(got, "\n") {
		if strings.HasPrefix(line, "|") && len([]rune(line)) != len([]rune(tableLine(got, line))) {
			t.Errorf("a table is not aligned at %q:\n%s", line, got)
		}
	}
}

// tableLine answers the first line of the table that a line stands in.
func tableLine(text, line string) string {
	before := text[:strings.Index(text, line)]
	return strings.SplitN(text[strings.LastIndex(before, "\n\n")+2:], "\n", 2)[0]
}

func TestReportForPrograms(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := sample().write(&b, options{JSON: true}); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Machine struct{ Redis string }
		Parts   []struct {
			Name string
			Bars []struct {
				Figure string
				Bound  float64
				AtMost bool `json:"at_most"`
				Met    bool
			}
			Tables []struct {
				Rows []struct {
					Name  string
					Cells map[string]struct{ Median, Min, Max float64 }
				}
			}
		}
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	p := got.Parts[0]
	if got.Machine.Redis != "7.0.15" || p.Name != "pages" || !p.Bars[0].Met || p.Bars[1].Met || !p.Bars[1].AtMost ||
		p.Tables[0].Rows[0].Cells["rate"].Max != 6000 {
		t.Errorf("%s", b.String())
	}
}

func TestPublish(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "README.md")
	write := func(s string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# Speed\n\n" + beginMark + "\nold\n" + endMark + "\n\nMore.\n")
	for range 2 { // the second time finds what the first wrote
		if err := sample().publish(file); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if want := "# Speed\n\n" + beginMark + "\n\n" + sample().text() + "\n" + endMark + "\n\nMore.\n"; string(b) != want {
		t.Errorf("the file is\n%s\nwant\n%s", b, want)
	}
	write("# Speed\n")
	if err := sample().publish(file); err == nil {
		t.Error("a file without marks was written")
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "# Speed\n" {
		t.Errorf("a file without marks has become %q, %v", b, err)
	}
}
