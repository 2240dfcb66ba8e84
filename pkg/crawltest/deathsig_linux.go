package crawltest

import (
	"os/exec"
	"syscall"
)

// dieWithUs makes the kernel kill the child when the thread that starts it
// ends, so that a test binary that is killed or panics leaves no server
// behind. Threads of the Go runtime live as long as the process, unless a
// goroutine locked one and returned: no test starts children from such a one.
func dieWithUs(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
