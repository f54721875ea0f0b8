/* What the sketch uses of Arduino, on a board that is emulated. */
#pragma once

#define LED_BUILTIN 13
#define OUTPUT 1
#define HIGH 1
#define LOW 0
#define A0 14

struct Port {
    void begin(long) {}
    void print(float) {}
    void print(const char*) {}
    void println(int) {}
    void println(const char* words);
};
extern Port Serial;

inline void pinMode(int, int) {}
inline void digitalWrite(int, int) {}
inline void delay(unsigned long) {}
int analogRead(int pin);

void setup();
void loop();
