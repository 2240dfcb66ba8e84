// Command grafana writes dashboards/trawl.json, which Grafana reads as it is: the panels are
// a table in rows.go, and what Grafana wants around each of them is said once.
package main

import (
	"fmt"
	"os"
)

//go:generate go run .

// written is where Grafana's provisioning finds the dashboard.
const written = "dashboards/trawl.json"

func main() {
	b, err := build()
	if err == nil {
		err = os.WriteFile(written, b, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "grafana: run this in deployments/grafana, by go generate:", err)
		os.Exit(1)
	}
}
