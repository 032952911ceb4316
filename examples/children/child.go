// A child of soloist in Go: ready, work, stop. Nothing but the standard library.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// notify tells soloist something by systemd's protocol. Without soloist it does nothing.
func notify(what string) {
	address := os.Getenv("NOTIFY_SOCKET")
	if address == "" {
		return
	}
	// An address that begins with @ is abstract; Go knows that.
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		return
	}
	defer conn.Close()
	conn.Write([]byte(what))
}

// work does one piece of it. The token goes along with every write to elsewhere.
func work(piece int, token string) {
	fmt.Printf("piece %d under token %s\n", piece, token)
}

func main() {
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	token := os.Getenv("SOLOIST_TOKEN")

	notify("READY=1")
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for piece := 1; ; piece++ {
		work(piece, token)
		select {
		case <-every.C:
		case <-stop.Done():
			notify("STOPPING=1")
			// Whatever is left has SOLOIST_STOP_SECONDS; then soloist kills us and all that we have started.
			fmt.Println("ended in order")
			return
		}
	}
}
