// Command echo says what it was given, waits for SIGTERM and exits with 3.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	for _, kv := range os.Environ() {
		if strings.HasPrefix(kv, "TRAWL_") {
			fmt.Println("unexpected:", kv)
			os.Exit(1)
		}
	}
	fmt.Println("listening on", os.Getenv("GREETING")+"-"+strings.Join(os.Args[1:], " "))
	<-stop
	fmt.Println("terminated")
	os.Exit(3)
}
