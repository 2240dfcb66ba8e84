package main

import (
	"os/exec"
	"syscall"
)

// dieWithUs makes the kernel kill the process when the thread that starts it ends, so that a bench that is killed
// leaves nothing behind. Threads of the Go runtime live as long as the process, unless a goroutine locked one.
func dieWithUs(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
