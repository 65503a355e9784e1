package server

import (
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isobar-xds/isobar/internal/control"
)

// boot tells since when the machine is up, with the time that it slept.
func boot() control.Boot {
	var up unix.Timespec
	id := bootID()
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil || id == "" {
		return control.Boot{}
	}
	return control.Boot{ID: id, Up: time.Duration(up.Nano())}
}

var bootID = sync.OnceValue(func() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
})
