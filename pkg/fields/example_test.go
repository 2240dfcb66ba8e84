package fields_test

import (
	"encoding/json"
	"fmt"
	"strings"

	"golang.org/x/net/html"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/fields"
)

func Example() {
	var spec fields.Spec
	err := json.Unmarshal([]byte(`{"items": {"selector": ".job", "fields": {
		"title":  {"selector": "h2", "required": true},
		"url":    {"selector": "a", "attr": "href"},
				"min":    {"selector": ".salary", "regex": "(\\d+)k", "type": "integer"},
		"months": {"selector": ".salary", "regex": "·(\\d+)薪", "type": "integer", "default": 12},
		"annual": {"expr": "min * months"}
	}}}`), &spec)
	if err != nil {
		fmt.Println(err)
		return
	}
	program, faults := fields.Compile(spec)
	if len(faults) > 0 {
		fmt.Println(faults)
		return
	}
	document, err := html.Parse(strings.NewReader(`<div class=job><h2><a href="/jobs/1">Gopher</a></h2>
		<p class=salary>15k-25k·13薪</div>`))
	if err != nil {
		fmt.Println(err)
		return
	}
	page, err := crawl.ParseURL("https://jobs.example.org/list")
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := program.Run(document, page)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, record := range result.Items {
		line, err := json.Marshal(record)
		fmt.Println(string(line), err)
	}
	// Output:
	// {"title":"Gopher","url":"https://jobs.example.org/jobs/1","min":15,"months":13,"annual":195} <nil>
}
