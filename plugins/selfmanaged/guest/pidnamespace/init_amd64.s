#include "textflag.h"

// func startInit(flags uintptr, orders *orders) (pid, errno uintptr)
TEXT ·startInit(SB), NOSPLIT, $0-32
	MOVQ	orders+8(FP), R12 // kept by system calls
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
	ADDQ	$32, R12
next:
	MOVQ	0(R12), AX
	CMPQ	AX, $-1
	JEQ	sleep
	MOVQ	8(R12), DI
	MOVQ	16(R12), SI
	MOVQ	24(R12), DX
	MOVQ	32(R12), R10
	MOVQ	40(R12), R8
	SYSCALL
	MOVQ	AX, 0(R12)
	ADDQ	$48, R12
	JMP	next
sleep:
	XORL	DI, DI
	XORL	SI, SI
	XORL	DX, DX
	XORL	R10, R10
	XORL	R8, R8
	MOVL	$271, AX // ppoll, of nothing and for ever
	SYSCALL
	JMP	sleep
