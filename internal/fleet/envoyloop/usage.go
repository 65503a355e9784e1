package envoyloop

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Machine is what a run took of the machine. Where the machine is busy with
// something else, or requests are sent late, the figures mean little.
type Machine struct {
	Cores  int     `json:"cores"`
	Busy   float64 `json:"busy"`         // share of the processor time of all cores, by whatever process
	Load   string  `json:"load_average"` // of the last minute
	Isobar float64 `json:"isobar_cores"`
	Envoys float64 `json:"envoy_cores"` // all together
	Bench  float64 `json:"bench_cores"` // this process: clients and backends
	LateMS float64 `json:"late_ms"`     // 99th percentile of how late requests were sent
}

func (m Machine) String() string {
	return fmt.Sprintf("%d cores, %.0f%% busy, load average %s; cores taken: isobar %.2f, Envoys %.2f, clients and backends %.2f; "+
		"99%% of requests sent within %.1f ms of their time",
		m.Cores, 100*m.Busy, m.Load, m.Isobar, m.Envoys, m.Bench, m.LateMS)
}

// usage is the processor time at the start of a run.
type usage struct {
	r                      *runner
	at                     time.Time
	busy, total            float64
	isobar, envoys, myself time.Duration
}

func startUsage(r *runner) *usage {
	u := &usage{r: r, at: time.Now()}
	u.busy, u.total = machineTicks()
	u.isobar, u.envoys, u.myself = u.processes()
	return u
}

func (u *usage) processes() (isobar, envoys, myself time.Duration) {
	for _, f := range []*fleet{u.r.isobar, u.r.alone} {
		if f != nil {
			for _, p := range f.proxies {
				envoys += processTime(p.PID())
			}
		}
	}
	return processTime(u.r.server.PID()), envoys, processTime(os.Getpid())
}

// LoadAverage is that of the machine in the last minute.
func LoadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "not known"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// stop returns what was used since the start.
func (u *usage) stop(requests []Request) Machine {
	seconds := time.Since(u.at).Seconds()
	busy, total := machineTicks()
	isobar, envoys, myself := u.processes()
	m := Machine{
		Cores: runtime.NumCPU(), Load: LoadAverage(), Isobar: (isobar - u.isobar).Seconds() / seconds,
		Envoys: (envoys - u.envoys).Seconds() / seconds, Bench: (myself - u.myself).Seconds() / seconds,
	}
	if total > u.total {
		m.Busy = (busy - u.busy) / (total - u.total)
	}
	late := make([]time.Duration, 0, len(requests))
	for i := range requests {
		late = append(late, requests[i].Late)
	}
	if slices.Sort(late); len(late) > 0 {
		m.LateMS = late[len(late)*99/100].Seconds() * 1000
	}
	return m
}

// machineTicks reads what all cores have done since the machine's start.
func machineTicks() (busy, total float64) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(line)[1:] {
		n, err := strconv.ParseFloat(field, 64)
		if err != nil || i > 7 { // guest time is in user time already
			break
		}
		total += n
		if i != 3 && i != 4 { // idle, iowait
			busy += n
		}
	}
	return busy, total
}

// clockTick is the unit of times in /proc, which is 10 ms on Linux.
const clockTick = 10 * time.Millisecond

// processTime is the processor time of a process, 0 if it has ended.
func processTime(pid int) time.Duration {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	// The name, in parentheses, may hold spaces; what follows begins with field 3.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var sum time.Duration
	for _, i := range []int{14, 15} { // utime, stime
		if i-3 < len(fields) {
			n, _ := strconv.ParseInt(fields[i-3], 10, 64)
			sum += time.Duration(n) * clockTick
		}
	}
	return sum
}
