//go:build !linux

package main

import (
	"context"
	"errors"
)

// checkImage runs the image, which takes Linux.
func (*checker) checkImage(context.Context, string) error {
	return errors.New("an image can be checked on Linux only")
}
