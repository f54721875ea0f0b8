// Watch the analog inputs; the LED is on while the last row is an anomaly.
#include <onlad.h>
#include <onlad_selftest.h>

static onlad_monitor monitor;

void setup() {
    pinMode(LED_BUILTIN, OUTPUT);
    Serial.begin(115200);
    Serial.println(onlad_selftest(&monitor) ? "self-test passed" : "self-test FAILED");
}

void loop() {
    float x[ONLAD_FEATURES];
    onlad_verdict verdict;
    for (int j = 0; j < ONLAD_FEATURES; ++j) x[j] = analogRead(A0 + j);
    onlad_observe(&monitor, x, &verdict);
    digitalWrite(LED_BUILTIN, verdict.is_anomaly ? HIGH : LOW);
    if (verdict.is_anomaly) {
        Serial.print("anomaly, score ");
        Serial.print(verdict.score);
        Serial.print(", feature ");
        Serial.println(verdict.causes[0].feature);
    }
    delay(100);
}
