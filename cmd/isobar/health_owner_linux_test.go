package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const canCutProcesses = true

// ownsSocket tells whether a process has a TCP socket with these ports. The
// local one alone would not do: sockets to other addresses may have it, too.
func ownsSocket(pid, local, remote int) bool {
	f, err := os.Open("/proc/net/tcp")
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	from, to := fmt.Sprintf(":%04X", local), fmt.Sprintf(":%04X", remote)
	sockets := map[string]bool{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if w := strings.Fields(lines.Text()); len(w) > 9 && strings.HasSuffix(w[1], from) && strings.HasSuffix(w[2], to) {
			sockets["socket:["+w[9]+"]"] = true
		}
	}
	files, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "fd", "*"))
	if err != nil {
		return false
	}
	for _, name := range files {
		if to, err := os.Readlink(name); err == nil && sockets[to] {
			return true
		}
	}
	return false
}
