// Package process runs a server in a process of its own and asks it for what
// it cost.
package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/isobar-xds/isobar/bench/internal/servers"
)

// Stats is what a server process has used so far.
type Stats struct {
	CPU     time.Duration // user and system
	Counted int64         // load reports received
}

// Memory is what a server process holds after its garbage is collected, in
// bytes.
type Memory struct {
	Heap   int64 // live objects
	Stacks int64 // of goroutines
	RSS    int64 // resident
}

// Run is the whole of a server process: it serves on loopback, tells the
// address, and obeys the lines that come in until there are no more.
//
//	change N   change one endpoint of cluster N
//	stats      print Stats
//	memory     collect garbage, print Memory
//	collect    free what is no longer in use
//	goroutines print how many there are
func Run(kind string, in io.Reader, out io.Writer) error {
	runtime.GOMAXPROCS(1)
	if dir := os.Getenv(ProfilesEnv); dir != "" {
		stop, err := profile(filepath.Join(dir, kind))
		if err != nil {
			return err
		}
		defer stop()
	}
	s, err := servers.New(kind)
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
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

// Input gives a server process its standard input so that nothing waits while it
// reads. A read that blocks takes the only processor with it into the kernel, until
// the runtime notices, up to 10 ms later: goroutines that the command before
// started would wait for that, and where a server serves it never happens.
func Input(stdin *os.File) (*os.File, error) {
	fd := stdin.Fd()
	if err := syscall.SetNonblock(int(fd), true); err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	return os.NewFile(fd, stdin.Name()), nil
}

// ProfilesEnv names the environment variable with the directory for CPU and
// heap profiles of servers; empty = none are written.
const ProfilesEnv = "BENCH_PROFILES"

// profile begins to write profiles to files with a common prefix, until stop.
func profile(prefix string) (stop func(), err error) {
	f, err := os.Create(prefix + ".cpu") //nolint:gosec // where the user wants it
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close()
		if h, err := os.Create(prefix + ".heap"); err == nil { //nolint:gosec // where the user wants it
			runtime.GC()
			_ = pprof.WriteHeapProfile(h)
			_ = h.Close()
		}
	}, nil
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
	case "stats":
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			return err
		}
		_, err := fmt.Fprintln(out, u.Utime.Nano()+u.Stime.Nano(), s.Counted())
		return err
	case "goroutines":
		_, err := fmt.Fprintln(out, runtime.NumGoroutine())
		return err
	case "collect":
		runtime.GC()
		_, err := fmt.Fprintln(out, "collected")
		return err
	case "memory":
		m, err := memory()
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(out, m.Heap, m.Stacks, m.RSS)
		return err
	}
	return fmt.Errorf("no command %q", line)
}

func memory() (Memory, error) {
	debug.FreeOSMemory()
	debug.FreeOSMemory() // sync.Pools need two
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	out := Memory{Heap: int64(m.HeapAlloc), Stacks: int64(m.StackInuse)} //nolint:gosec // far below 2^63
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
