//go:build !race

package group_test

// defaultSeeds is how many groups TestGroups plays.
const defaultSeeds = 1000
