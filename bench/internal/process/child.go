// Package process runs a server in a process of its own and asks it for what
// it cost.
package process

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/isobar-xds/isobar/bench/internal/servers"
)

// Stats is what a server process has used so far.
type Stats struct {
	CPU     time.Duration // user and system
	Memory  int64         // bytes of heap in use and stacks; current after Settle only
	RSS     int64         // bytes resident
	Counted int64         // load reports received
}

// Run is the whole of a server process: it serves on loopback, tells the
// address, and obeys the lines that come in until there are no more.
//
//	change N   change one endpoint of cluster N
//	settle     collect garbage
//	stats      print Stats
func Run(kind string, in io.Reader, out io.Writer) error {
	runtime.GOMAXPROCS(1)
	s, err := servers.New(kind)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	if _, err := fmt.Fprintln(out, l.Addr()); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if err := obey(s, lines.Text(), out); err != nil {
			return err
		}
	}
	select {
	case err := <-served:
		return err
	default:
		return lines.Err() // the end of the input is the end of the process
	}
}

func obey(s servers.Server, line string, out io.Writer) error {
	verb, rest, _ := strings.Cut(line, " ")
	switch verb {
	case "change":
		cluster, err := strconv.Atoi(rest)
		if err != nil {
			return err
		}
		return s.Change(cluster)
	case "settle":
		debug.FreeOSMemory()
		debug.FreeOSMemory() // sync.Pools need two
		_, err := fmt.Fprintln(out, "settled")
		return err
	case "stats":
		st, err := stats(s)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(out, int64(st.CPU), st.Memory, st.RSS, st.Counted)
		return err
	}
	return fmt.Errorf("no command %q", line)
}

func stats(s servers.Server) (Stats, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return Stats{}, err
	}
	out := Stats{CPU: time.Duration(u.Utime.Nano() + u.Stime.Nano()), Counted: s.Counted()}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	out.Memory = int64(m.HeapAlloc + m.StackInuse) //nolint:gosec // far below 2^63
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return out, err
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(b), &size, &resident); err != nil {
		return out, err
	}
	out.RSS = resident * int64(os.Getpagesize())
	return out, nil
}
