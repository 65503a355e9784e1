package checker_test

import "strconv"

func itoa(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

func atoi(s string) uint32 {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		panic(err)
	}
	return uint32(n)
}
