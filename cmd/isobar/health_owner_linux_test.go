package main

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const canCutProcesses = true

// socketsOf returns the ports of a process's TCP connections: its own and the
// other end's. Its own alone would not do: connections to other addresses may
// have the same.
func socketsOf(pid int) map[[2]int]bool {
	f, err := os.Open("/proc/net/tcp")
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	all := map[string][2]int{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if w := strings.Fields(lines.Text()); len(w) > 9 {
			all["socket:["+w[9]+"]"] = [2]int{portOf(w[1]), portOf(w[2])}
		}
	}
	files, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "fd", "*"))
	if err != nil {
		return nil
	}
	out := map[[2]int]bool{}
	for _, name := range files {
		if to, err := os.Readlink(name); err == nil {
			if ports, ok := all[to]; ok {
				out[ports] = true
			}
		}
	}
	return out
}

// portOf reads that of an address in hexadecimal digits; 0 where there is none.
func portOf(address string) int {
	_, digits, _ := strings.Cut(address, ":")
	port, err := strconv.ParseUint(digits, 16, 16)
	if err != nil {
		return 0
	}
	return int(port)
}
