package redisconn

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// advice adds to an error that no waiting and no resend can mend what a person should do.
// Its words go to a log: they repeat neither user nor password, nor does what go-redis and
// Redis say. What is wrong with a handshake, [dialer] says.
type advice struct{ remote *peer }

// DialHook implements [redis.Hook].
func (advice) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements [redis.Hook].
func (a advice) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return a.on(next(ctx, cmd)) }
}

// ProcessPipelineHook implements [redis.Hook].
func (a advice) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := a.on(next(ctx, cmds))
		sent := err == nil
		for _, cmd := range cmds {
			if own := cmd.Err(); own != nil {
				cmd.SetErr(a.on(own))
				sent = true
			}
		}
		if !sent {
			// go-redis v9.23.0 forgets this when Redis refuses the password of the
			// connection: whoever asks the commands would take them for done.
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		}
		return err
	}
}

// advised is an error with what to do about it.
type advised struct {
	do  string
	err error
}

func (e *advised) Error() string { return e.do + ": " + e.err.Error() }

func (e *advised) Unwrap() error { return e.err }

func (a advice) on(err error) error {
	if err == nil || errors.Is(err, redis.Nil) {
		return err
	}
	if _, again := errors.AsType[*advised](err); again {
		return err
	}
	if do := a.refused(err); do != "" {
		return &advised{do, err}
	}
	return err
}

// refused says what to do when Redis ends it; "" for another error.
func (a advice) refused(err error) string {
	switch {
	case redis.IsAuthError(err), redis.HasErrorPrefix(err, "WRONGPASS"), redis.HasErrorPrefix(err, "NOAUTH"):
		return "Redis refuses the user or the password: correct them in " + settingURL
	case redis.IsPermissionError(err), redis.HasErrorPrefix(err, "The user executing the script"):
		return "the user of " + settingURL + " lacks a right in Redis: give it those of deployments/redis/users.acl"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" && a.remote.shows {
		return "Redis does not accept the certificate of " + settingCert + ": let a CA sign it that Redis knows"
	}
	if !a.remote.tls && errors.Is(err, io.EOF) {
		return "Redis closed the connection; if it speaks TLS, begin " + settingURL + " with rediss://"
	}
	// A server that wants a certificate and gets none ends the connection after the
	// handshake; whether its alert is still read is a matter of luck.
	if a.remote.asked.Load() && !a.remote.shows && ended(err) {
		return "Redis asks for a certificate, and there is none to show: name one in " + settingCert +
			" and " + settingKey
	}
	return ""
}

// ended reports whether the other side ended the connection.
func ended(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		ok && op.Op == "remote error"
}
