package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Usage is what the system reports on a process.
type Usage struct {
	At  time.Time
	CPU time.Duration // user and system, of all threads that are left
	RSS int64         // bytes
}

// UsageOf asks the system for what a process has used.
func UsageOf(pid int) (u Usage, err error) {
	u.At = time.Now()
	if u.CPU, err = cpuOf(pid); err != nil {
		return u, err
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return u, err
	}
	// The name, in parentheses, may hold spaces; what follows begins with field 3.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 22 {
		return u, errors.New("/proc/PID/stat can't be read")
	}
	pages, err := strconv.ParseInt(fields[24-3], 10, 64)
	u.RSS = pages * int64(os.Getpagesize())
	return u, err
}

// cpuOf sums up what the threads of a process have used. /proc/PID/stat tells the
// same in steps of 10 ms, which is too coarse to see when a server rests.
func cpuOf(pid int) (time.Duration, error) {
	files, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "schedstat"))
	if err != nil {
		return 0, err
	}
	if len(files) == 0 {
		return 0, fmt.Errorf("process %d has no threads", pid)
	}
	sum := time.Duration(0)
	for _, f := range files {
		data, err := os.ReadFile(f) //nolint:gosec // of our own child
		if errors.Is(err, os.ErrNotExist) {
			continue // the thread has just ended
		}
		if err != nil {
			return 0, err
		}
		text, _, _ := strings.Cut(string(data), " ")
		ns, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", f, err)
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}

// MostResident is the most memory that a process ever had resident, bytes.
func MostResident(pid int) (int64, error) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if text, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 10, 64)
			return kilobytes << 10, err
		}
	}
	return 0, errors.New("/proc/PID/status has no VmHWM")
}

// Quiet waits until a process has nothing left to do, and returns what it has used
// by then.
func Quiet(pid int) (Usage, error) {
	last, err := UsageOf(pid)
	for range quietTries {
		if err != nil {
			return last, err
		}
		<-time.After(quietEvery)
		var next Usage
		next, err = UsageOf(pid)
		if err == nil && next.CPU-last.CPU < quietBelow {
			return next, nil
		}
		last = next
	}
	return last, errors.Join(err, fmt.Errorf("process %d does not come to rest", pid))
}
