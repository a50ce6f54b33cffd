#include "textflag.h"

// func startInit(flags uintptr, ignore *[4]uintptr) (pid, errno uintptr)
TEXT ·startInit(SB), NOSPLIT, $0-32
	MOVQ	ignore+8(FP), R12 // kept by system calls
	MOVQ	flags+0(FP), DI
	XORL	SI, SI // the caller's stack, which the clone leaves alone
	XORL	DX, DX
	XORL	R10, R10
	XORL	R8, R8
	MOVL	$56, AX // clone
	SYSCALL
	TESTQ	AX, AX
	JZ	clone
	CMPQ	AX, $0xfffffffffffff001
	JCC	failed
	MOVQ	AX, pid+16(FP)
	MOVQ	$0, errno+24(FP)
	RET
failed:
	NEGQ	AX
	MOVQ	$0, pid+16(FP)
	MOVQ	AX, errno+24(FP)
	RET
clone:
	MOVL	$17, DI // SIGCHLD
	MOVQ	R12, SI
	XORL	DX, DX
	MOVL	$8, R10
	MOVL	$13, AX // rt_sigaction
	SYSCALL
sleep:
	XORL	DI, DI
	XORL	SI, SI
	XORL	DX, DX
	XORL	R10, R10
	XORL	R8, R8
	MOVL	$271, AX // ppoll, of nothing and for ever
	SYSCALL
	JMP	sleep
