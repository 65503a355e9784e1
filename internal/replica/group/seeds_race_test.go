//go:build race

package group_test

// defaultSeeds is less with the race detector: a group is one goroutine.
const defaultSeeds = 50
