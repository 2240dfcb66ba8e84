package main

import (
	"bytes"
	"encoding/json"
)

// What follows is the part of Grafana's dashboard schema (version 39, of Grafana 11; 12 reads it
// as it is) that this dashboard uses. Names are Grafana's.
type (
	dashboard struct {
		ID            *int        `json:"id"` // null: an instance gives its own
		UID           string      `json:"uid"`
		Title         string      `json:"title"`
		Description   string      `json:"description"`
		Tags          []string    `json:"tags"`
		SchemaVersion int         `json:"schemaVersion"`
		Version       int         `json:"version"`
		Editable      bool        `json:"editable"`
		GraphTooltip  int         `json:"graphTooltip"` // 1: one crosshair over all panels
		Refresh       string      `json:"refresh"`
		Time          timeRange   `json:"time"`
		Timezone      string      `json:"timezone"`
		Templating    list        `json:"templating"`
		Annotations   list        `json:"annotations"`
		Links         []struct{}  `json:"links"`
		Panels        []panelJSON `json:"panels"`
	}
	timeRange struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
	list struct {
		List []any `json:"list"`
	}
	variable struct {
		Name    string   `json:"name"`
		Label   string   `json:"label"`
		Type    string   `json:"type"`
		Query   string   `json:"query"`
		Refresh int      `json:"refresh"` // 1: when the dashboard is opened
		Hide    int      `json:"hide"`
		Options []string `json:"options"`
	}
	annotation struct {
		Name        string     `json:"name"`
		Datasource  datasource `json:"datasource"`
		Enable      bool       `json:"enable"`
		IconColor   string     `json:"iconColor"`
		Expr        string     `json:"expr"`
		Step        string     `json:"step"`
		TitleFormat string     `json:"titleFormat"`
		TagKeys     string     `json:"tagKeys"`
	}
	datasource struct {
		Type string `json:"type"`
		UID  string `json:"uid"`
	}
	panelJSON struct {
		ID          int          `json:"id"` // within the dashboard
		Type        string       `json:"type"`
		Title       string       `json:"title"`
		Description string       `json:"description,omitempty"`
		Datasource  *datasource  `json:"datasource,omitempty"`
		GridPos     gridPos      `json:"gridPos"`
		Collapsed   *bool        `json:"collapsed,omitempty"` // of a row
		Panels      []panelJSON  `json:"panels,omitempty"`    // of a collapsed row
		FieldConfig *fieldConfig `json:"fieldConfig,omitempty"`
		Options     any          `json:"options,omitempty"`
		Targets     []targetJSON `json:"targets,omitempty"`
	}
	gridPos struct {
		H int `json:"h"`
		W int `json:"w"`
		X int `json:"x"`
		Y int `json:"y"`
	}
	fieldConfig struct {
		Defaults  fieldDefaults `json:"defaults"`
		Overrides []struct{}    `json:"overrides"`
	}
	fieldDefaults struct {
		Unit   string   `json:"unit"`
		Min    *float64 `json:"min,omitempty"`
		Max    *float64 `json:"max,omitempty"`
		Custom any      `json:"custom,omitempty"`
	}
	targetJSON struct {
		RefID        string     `json:"refId"`
		Datasource   datasource `json:"datasource"`
		EditorMode   string     `json:"editorMode"`
		Expr         string     `json:"expr"`
		LegendFormat string     `json:"legendFormat"`
		Range        bool       `json:"range"`
		Instant      bool       `json:"instant"`
		Format       string     `json:"format,omitempty"`
	}
)

// object is a part whose fields matter to Grafana alone.
type object = map[string]any

const (
	columns = 24 // of Grafana's grid
	height  = 8  // of a graph and of a table
	low     = 4  // of a number
)

// prometheus is whichever Prometheus the reader chooses at the top of the dashboard.
var prometheus = datasource{Type: "prometheus", UID: "${datasource}"}

// build renders the dashboard.
func build() ([]byte, error) {
	d := dashboard{
		UID: "trawl", Title: "Trawl", Tags: []string{"trawl"}, SchemaVersion: 39, GraphTooltip: 1,
		Description: "What Trawl does, how fast, and what holds it up. Figures of jobs, queue and Redis are " +
			"of the whole cluster; those of pages and processes are added up over the workers.",
		Refresh: "10s", Time: timeRange{From: "now-1h", To: "now"}, Timezone: "browser", Links: []struct{}{},
		Templating: list{[]any{variable{
			Name: "datasource", Label: "Prometheus", Type: "datasource", Query: "prometheus", Refresh: 1,
			Options: []string{},
		}}},
		Annotations: list{[]any{annotation{
			Name: "Alerts", Datasource: prometheus, Enable: true, IconColor: "red", Step: "60s",
			Expr:        `ALERTS{alertname=~"Trawl.*", alertstate="firing"}`,
			TitleFormat: "{{alertname}}", TagKeys: "severity",
		}}},
		Panels: lay(rows()),
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false) // expressions compare
	e.SetIndent("", " ")
	err := e.Encode(d)
	return out.Bytes(), err
}

// lay gives each panel its number and its place: in rows, from left to right. Rows after the first
// are folded up, so that what is not looked at is not asked for.
func lay(rows []row) []panelJSON {
	var (
		out   []panelJSON
		id, y int
	)
	for i, r := range rows {
		folded := i > 0
		id++
		head := panelJSON{
			ID: id, Type: "row", Title: r.title, Collapsed: &folded, GridPos: gridPos{H: 1, W: columns, Y: y},
		}
		y++
		var panels []panelJSON
		x, tallest, top := 0, 0, y
		for _, p := range r.panels {
			id++
			j := p.render(id)
			if x+j.GridPos.W > columns {
				x, top, tallest = 0, top+tallest, 0
			}
			j.GridPos.X, j.GridPos.Y = x, top
			x, tallest = x+j.GridPos.W, max(tallest, j.GridPos.H)
			panels = append(panels, j)
		}
		if folded {
			head.Panels = panels
			out = append(out, head)
			continue
		}
		out = append(append(out, head), panels...)
		y = top + tallest
	}
	return out
}

// render makes of a panel what Grafana reads.
func (p panel) render(id int) panelJSON {
	j := panelJSON{
		ID: id, Type: string(p.kind), Title: p.title, Description: p.about, Datasource: &prometheus,
		FieldConfig: &fieldConfig{Defaults: fieldDefaults{Unit: p.unit, Min: new(0.0)}, Overrides: []struct{}{}},
		GridPos:     gridPos{H: height, W: columns / 3},
	}
	if p.unit == ratio {
		j.FieldConfig.Defaults.Max = new(1.0)
	}
	switch p.kind {
	case graph, stack:
		j.Type = "timeseries"
		mode, fill := "none", 0
		if p.kind == stack {
			mode, fill = "normal", 30
		}
		j.FieldConfig.Defaults.Custom = object{
			"drawStyle": "line", "lineWidth": 1, "fillOpacity": fill, "showPoints": "never",
			"stacking": object{"mode": mode, "group": "A"},
		}
		j.Options = object{
			"legend":  object{"displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": []string{}},
			"tooltip": object{"mode": "multi", "sort": "desc"},
		}
	case number:
		j.GridPos = gridPos{H: low, W: columns / 6}
		j.Options = object{
			"graphMode": "none", "colorMode": "none", "textMode": "auto",
			"reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
		}
	case table:
		j.FieldConfig.Defaults.Min = nil
		j.Options = object{"showHeader": true}
	}
	// A number is of now, too: of a range Grafana shows the last value that there was, so that what is down
	// looks as well as it was before.
	now := p.kind == table || p.kind == number
	for i, q := range p.queries {
		t := targetJSON{
			RefID: string(rune('A' + i)), Datasource: prometheus, EditorMode: "code",
			Expr: q.expr, LegendFormat: q.legend, Range: !now, Instant: now,
		}
		if p.kind == table {
			t.Format = "table"
		}
		j.Targets = append(j.Targets, t)
	}
	return j
}
