package client_test

import (
	"context"
	"fmt"
	"strings"

	"example.com/trawl/pkg/client"
)

// Take values out of pages, and keep them beyond the job.
func ExampleFields() {
	c, site, stop := start()
	defer stop()
	ctx := context.Background()

	job, err := c.Submit(ctx, client.Spec{
		SeedURL: site + "/", Concurrency: 1,
		Fields: client.Fields{
			{Name: "name", Selector: "title", Required: true},
			{Name: "links", Selector: "a", Many: true},
			{Name: "count", Expr: "len(links)"},
		},
		Collection: &client.Collection{Name: "pages", Facets: []string{"links"}, Numbers: []string{"count"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for page, err := range c.Records(ctx, job.ID, client.Follow()) {
		var fields struct {
			Name  string
			Links []string
		}
		if err == nil {
			err = page.Decode(&fields)
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(page.Change, fields.Name, fields.Links)
	}
	found, err := c.Analytics(ctx, "pages", 10)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(found.Total, "items, the most links:", found.Numbers["count"].Max)

	// Output:
	// created Home [guide]
	// created Guide [terms lost]
	// created Terms []
	// 3 items, the most links: 2
}

// Try fields on a page before a job is submitted.
func ExampleClient_Extract() {
	c, _, stop := start()
	defer stop()
	ctx := context.Background()

	page, err := c.Extract(ctx, client.Extract{
		HTML: `<h1>A chair</h1><b class=price>1.234,50 €</b>`,
		Fields: client.Fields{
			{Name: "price", Selector: ".price", Type: client.FieldNumber, Locale: "de"},
			{Name: "colour", Selector: ".colour", Required: true},
		},
		Formats: []client.ContentFormat{client.ContentMarkdown},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(page.Fields))
	fmt.Println("missing:", strings.Join(page.Missing, ", "))
	fmt.Println(page.Markdown)

	// Output:
	// {"price":1234.5,"colour":null}
	// missing: fields.colour
	// # A chair
	//
	// **1.234,50 €**
}

// Read all items of a collection in one stream, which may break as often as it likes.
func ExampleClient_StreamItems() {
	c, site, stop := start()
	defer stop()
	ctx := context.Background()

	job, err := c.Submit(ctx, client.Spec{
		URLs: []string{site + "/", site + "/terms"}, Concurrency: 1,
		Fields:     client.Fields{{Name: "name", Selector: "title"}},
		Collection: &client.Collection{Name: "names", Facets: []string{"name"}},
	})
	if err == nil {
		_, err = c.Wait(ctx, job.ID)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	for item, err := range c.StreamItems(ctx, "names", client.ItemsQuery{Where: map[string][]string{"name": {"Terms"}}}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(strings.TrimPrefix(item.Key, site), string(item.Fields))
	}

	// Output:
	// /terms {"name":"Terms"}
}
