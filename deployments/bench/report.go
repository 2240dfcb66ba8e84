package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// findings are what a part measured.
type findings struct {
	Tables []table `json:"tables"`
	Bars   []bar   `json:"bars,omitempty"`
}

// table is one thing that was measured of several contenders, or at several sizes.
type table struct {
	Title   string   `json:"title"`
	Columns []column `json:"columns"`
	Rows    []row    `json:"rows"`
	Notes   []string `json:"notes,omitempty"` // sentences below the table
}

type column struct {
	Key    string `json:"key"`    // for programs, as pages_per_second
	Title  string `json:"title"`  // for people
	Digits int    `json:"digits"` // behind the decimal point
	Range  bool   `json:"-"`      // show the least and the greatest as well
}

type row struct {
	Name  string          `json:"name"`
	Cells map[string]cell `json:"cells"` // by the key of the column; what is absent was not measured
}

// cell is a figure over the rounds.
type cell struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Rounds int     `json:"rounds"`
}

// over is the figure of some rounds, of which there is one at least.
func over(rounds ...float64) cell {
	v := slices.Sorted(slices.Values(rounds))
	// The mean of the two in the middle, where there are two.
	return cell{Median: (v[(len(v)-1)/2] + v[len(v)/2]) / 2, Min: v[0], Max: v[len(v)-1], Rounds: len(v)}
}

// overOf is [over] for what each round of some kind says.
func overOf[T any](rounds []T, of func(T) float64) cell {
	v := make([]float64, len(rounds))
	for i, r := range rounds {
		v[i] = of(r)
	}
	return over(v...)
}

// bar is one of the bars of DESIGN §8.
type bar struct {
	Figure string  `json:"figure"`
	AtMost bool    `json:"at_most"` // else at least
	Bound  float64 `json:"bound"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit,omitempty"`
	Digits int     `json:"-"`
}

func (b bar) met() bool {
	if b.AtMost {
		return b.Value <= b.Bound
	}
	return b.Value >= b.Bound
}

// MarshalJSON implements [json.Marshaler].
func (b bar) MarshalJSON() ([]byte, error) {
	type plain bar
	return json.Marshal(struct {
		plain
		Met bool `json:"met"`
	}{plain(b), b.met()})
}

// report is all that a run found.
type report struct {
	Machine machine    `json:"machine"`
	Begun   time.Time  `json:"begun"`
	Seconds float64    `json:"seconds"`
	Parts   []reported `json:"parts"`
}

type reported struct {
	Name string `json:"name"`
	findings
}

// machine is where a run was.
type machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	System string `json:"system"`
	Go     string `json:"go"`
	Redis  string `json:"redis"`
	Commit string `json:"commit"`
}

func describeMachine(ctx context.Context, r *rig) machine {
	m := machine{Cores: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), CPU: "unknown"}
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, after, ok := strings.Cut(string(info), "model name"); ok {
			name, _, _ := strings.Cut(after, "\n")
			m.CPU = strings.TrimSpace(strings.TrimLeft(name, "\t :"))
		}
	}
	if v, err := output(ctx, "", "redis-server", "--version"); err == nil {
		_, v, _ = strings.Cut(v, "v=")
		m.Redis, _, _ = strings.Cut(v, " ")
	}
	m.Commit = commit(ctx, r.root)
	return m
}

func (r *report) add(p part, f findings) { r.Parts = append(r.Parts, reported{p.name, f}) }

// write writes the report as o asks for it.
func (r *report) write(w io.Writer, o options) error {
	var err error
	if o.JSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		err = e.Encode(r)
	} else {
		_, err = io.WriteString(w, r.text())
	}
	if o.Readme != "" {
		err = errors.Join(err, r.publish(o.Readme))
	}
	return err
}

// text is the report for people: Markdown whose tables are aligned, so that a terminal shows them as well.
func (r *report) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d cores, %s, %s, Redis %s; commit %s, %s, %.0f minutes.\n", r.Machine.CPU, r.Machine.Cores,
		r.Machine.System, r.Machine.Go, r.Machine.Redis, r.Machine.Commit, r.Begun.Format(time.DateOnly), r.Seconds/60)
	lines := [][]string{{"bar", "", "measured", ""}}
	for _, p := range r.Parts {
		for _, bar := range p.Bars {
			lines = append(lines, bar.cells())
		}
	}
	if len(lines) > 1 {
		b.WriteString("\n### Bars of DESIGN §8\n\n")
		writeAligned(&b, lines)
	}
	for _, p := range r.Parts {
		for i := range p.Tables {
			fmt.Fprintf(&b, "\n### %s\n\n", p.Tables[i].Title)
			writeAligned(&b, p.Tables[i].lines())
			for _, note := range p.Tables[i].Notes {
				fmt.Fprintf(&b, "\n%s\n", note)
			}
		}
	}
	return b.String()
}

func (b bar) cells() []string {
	sign, verdict := "≥", "met"
	if b.AtMost {
		sign = "≤"
	}
	if !b.met() {
		verdict = "**missed**"
	}
	unit := ""
	if b.Unit != "" {
		unit = " " + b.Unit
	}
	return []string{b.Figure, sign + " " + number(b.Bound, b.Digits) + unit, number(b.Value, b.Digits) + unit, verdict}
}

func (t *table) lines() [][]string {
	head := []string{""}
	for _, c := range t.Columns {
		head = append(head, c.Title)
	}
	lines := [][]string{head}
	for _, r := range t.Rows {
		line := []string{r.Name}
		for _, c := range t.Columns {
			v, ok := r.Cells[c.Key]
			switch {
			case !ok:
				line = append(line, "–")
			case c.Range && v.Rounds > 1:
				line = append(line, fmt.Sprintf("%s (%s–%s)", number(v.Median, c.Digits), number(v.Min, c.Digits), number(v.Max, c.Digits)))
			default:
				line = append(line, number(v.Median, c.Digits))
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// number writes a number with commas between thousands.
func number(v float64, digits int) string {
	s := strconv.FormatFloat(v, 'f', digits, 64)
	whole, rest, _ := strings.Cut(s, ".")
	for at := len(whole) - 3; at > 0 && whole[at-1] != '-'; at -= 3 {
		whole = whole[:at] + "," + whole[at:]
	}
	if rest != "" {
		whole += "." + rest
	}
	return whole
}

// writeAligned writes a table of Markdown: the first column to the left, the others to the right.
func writeAligned(b *strings.Builder, lines [][]string) {
	wide := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, s := range line {
			wide[i] = max(wide[i], len([]rune(s)), 3)
		}
	}
	put := func(line []string) {
		for i, s := range line {
			pad := strings.Repeat(" ", wide[i]-len([]rune(s)))
			if i == 0 {
				s += pad
			} else {
				s = pad + s
			}
			b.WriteString("| " + s + " ")
		}
		b.WriteString("|\n")
	}
	put(lines[0])
	for i, n := range wide {
		if i == 0 {
			b.WriteString("|" + strings.Repeat("-", n+2))
		} else {
			b.WriteString("|" + strings.Repeat("-", n+1) + ":")
		}
	}
	b.WriteString("|\n")
	for _, line := range lines[1:] {
		put(line)
	}
}

// The marks between which the tables stand in a file.
const (
	beginMark = "<!-- what follows is written by go run ./deployments/bench --readme deployments/bench/README.md -->"
	endMark   = "<!-- end -->"
)

// around reads a file that tables are published in, and answers what stands before and behind them.
func around(file string) (before, after []byte, err error) {
	old, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("publish: %w", err)
	}
	before, rest, ok := bytes.Cut(old, []byte(beginMark))
	_, after, ok2 := bytes.Cut(rest, []byte(endMark))
	if !ok || !ok2 {
		return nil, nil, errors.New("publish: " + file + " lacks the marks " + beginMark + " and " + endMark)
	}
	return before, after, nil
}

// publish puts the tables between the marks of a file.
func (r *report) publish(file string) error {
	before, after, err := around(file)
	if err != nil {
		return err
	}
	return os.WriteFile(file, slices.Concat(before, []byte(beginMark+"\n\n"+r.text()+"\n"+endMark), after), 0o644) //nolint:gosec // it is read by everybody
}
